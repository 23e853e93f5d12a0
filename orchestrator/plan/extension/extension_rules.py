"""Rules for extending a sweep that has begun: allowed changes, and reasons for refusing the others.

Finished trials stay unchanged, and later trials must be run identically. Arms, seeds, posthoc settings and
repeats of the searches can be appended. Trials can be added to the searches until the first confirm trial is
requested. A confirm trial belongs to the winner of a fixed number of trials, and no trial may read test
splits before that number is fixed. Test splits can be added even later, because checkpoints of confirm trials
are retained and evaluated again.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.spec.differences import ABSENT, Difference

ADDABLE_PARTS = (
    "Can be added: arms, components and values of a grid or of contexts; seeds and splits after those of "
    "confirm, or confirm itself; search.repeats; search.trials_per_arm, until the first confirm trial; "
    "re-evaluations under posthoc. Budgets, on_error, texts and published values can change. Anything else "
    "is another sweep: launch it under another name."
)
_SEARCH_REFUSAL = "all search trials of all arms must use the same search settings"
_CHANGEABLE_SECTIONS = frozenset({"question", "published", "profiles", "on_error"})


@dataclass(frozen=True, slots=True)
class RequestedWork:
    """Progress of a sweep: kinds of trials that were requested."""

    searched: bool
    """Whether any search trial was requested."""
    confirmed: bool
    """Whether any confirm trial was requested."""
    decides: bool
    """Whether seeds run until verdicts are decided (`confirm.stop`)."""
    has_custom_trainable: bool = False
    """Whether the sweep has a custom trainable."""

    @property
    def has_looks(self) -> bool:
        """Return whether there were, or may have been, interim looks at the seeds."""
        return self.confirmed and self.decides


def refuse_change(change: Difference, progress: RequestedWork) -> str:
    """Return why a sweep cannot be extended by a change; empty if it can."""
    section, *inner_keys = change.keys
    if section in _CHANGEABLE_SECTIONS or inner_keys[-1:] == ["why"]:
        return ""
    rules: Mapping[str, Callable[[], str]] = {
        "name": lambda: "a sweep keeps its name",
        "trainable": lambda: "all trials must run the same trainable",
        "baseline": lambda: "the settings of every arm follow from it",
        "arms": lambda: _refuse_arms(change, progress),
        "components": lambda: _refuse_arms(change, progress),
        "combine": lambda: (
            _refuse_arms(change, progress) if inner_keys != ["of"] else _refuse_list_change(change, progress)
        ),
        "grid": lambda: _refuse_list_change(change, progress) if inner_keys else _axis_refusal(),
        "contexts": lambda: _refuse_list_change(change, progress) if inner_keys else _axis_refusal(),
        "search": lambda: _refuse_search(change, inner_keys, progress),
        "confirm": lambda: _refuse_confirm(change, inner_keys, progress),
        "answer": lambda: _refuse_answer(inner_keys, progress),
        "posthoc": lambda: _refuse_posthoc(change, inner_keys),
        "resources": lambda: _refuse_resources(inner_keys),
        "budget": lambda: _refuse_budget(change, inner_keys, progress),
    }
    return rules[section]()


def _refuse_arms(change: Difference, progress: RequestedWork) -> str:
    if change.after is ABSENT:
        return "a requested arm cannot be removed"
    if change.before is not ABSENT:
        return "an arm cannot change after its trials ran; add an arm with another name"
    return _refuse_after_looks("an arm", progress)


def _refuse_list_change(change: Difference, progress: RequestedWork) -> str:
    """Return why a change of a list is refused: lists that create arms may only be appended to."""
    if change.before is ABSENT:
        return _axis_refusal()
    return _refuse_loss(change) or _refuse_after_looks("an arm", progress)


def _axis_refusal() -> str:
    return "the change would alter every arm"


def _refuse_loss(change: Difference) -> str:
    if change.after is ABSENT or any(item not in change.after for item in change.before):
        return "requested values cannot be removed"
    return ""


def _refuse_after_looks(subject: str, progress: RequestedWork) -> str:
    if not progress.has_looks:
        return ""
    return f"with stop: decided, adding {subject} would change decisions that were already made"


def _refuse_search(change: Difference, inner_keys: list[str], progress: RequestedWork) -> str:
    if inner_keys == ["repeats"]:
        is_fewer = change.after is ABSENT or change.after < (1 if change.before is ABSENT else change.before)
        return "requested values cannot be removed" if is_fewer else _refuse_after_looks("a repeat", progress)
    if inner_keys != ["trials_per_arm"]:
        return _SEARCH_REFUSAL if inner_keys else "the search cannot change once confirmation has started"
    if change.after < change.before:
        return "requested values cannot be removed"
    if progress.confirmed:
        return (
            "test splits were already evaluated for the winners of the present trials: more trials may give "
            "other winners"
        )
    return ""


def _refuse_confirm(change: Difference, inner_keys: list[str], progress: RequestedWork) -> str:
    if change.after is ABSENT and not inner_keys:
        return "requested values cannot be removed"
    if inner_keys == ["seeds"]:
        old_value, new_value = change.before, change.after
        if list(new_value[: len(old_value)]) != list(old_value):
            return f"new seeds must follow the present ones: they must begin with {_list(old_value)}"
        return _refuse_after_looks("a seed", progress)
    if not progress.confirmed or not inner_keys:
        return ""
    if inner_keys == ["splits"]:
        return _refuse_splits(change, progress)
    return "confirm trials have already run with the old value"


def _refuse_splits(change: Difference, progress: RequestedWork) -> str:
    old_splits = [] if change.before is ABSENT else list(change.before)
    new_splits = [] if change.after is ABSENT else list(change.after)
    if new_splits[: len(old_splits)] != old_splits:
        return f"new splits must follow the present ones: they must begin with {_list(old_splits)}"
    if progress.has_custom_trainable:
        return (
            "a custom trainable measures its splits at the end of a confirm trial, and some trials were "
            "requested without the new splits; `evaluate` receives only settings"
        )
    return ""


def _refuse_answer(inner_keys: list[str], progress: RequestedWork) -> str:
    if inner_keys == ["spread"] or not progress.confirmed:
        return ""
    return "the answer cannot change after confirm trials have started"


def _refuse_posthoc(change: Difference, inner_keys: list[str]) -> str:
    if change.before is ABSENT:
        return ""
    return _refuse_loss(change) if inner_keys else "requested values cannot be removed"


def _refuse_resources(inner_keys: list[str]) -> str:
    if inner_keys in (["retries"], ["checkpoint_seconds"]):
        return ""
    return "all trials must have the same resources, which their costs depend on"


def _refuse_budget(change: Difference, inner_keys: list[str], progress: RequestedWork) -> str:
    if "each_arm" in (*inner_keys, *_keys(change.before), *_keys(change.after)):
        return "the limits of a search affect its result" if progress.searched else ""
    if change.before is ABSENT and "flops" in (*inner_keys, *_keys(change.after)):
        return "earlier trials may not have reported FLOPs" if progress.searched or progress.confirmed else ""
    return ""


def _keys(value: Any) -> tuple[str, ...]:
    return tuple(value) if isinstance(value, dict) else ()


def _list(values: Any) -> str:
    return f"[{', '.join(map(str, values))}]"
