"""Task and training settings that have an effect in a trial, normalised so that equivalent ones are equal.

Each field's effect is declared next to it (`trainables.field_effects`). For example, a patience above the
number of validations has no effect.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isclose
from types import SimpleNamespace
from typing import Any

from orchestrator.plan.training_code.settings import ParsedSettings
from search_spaces.dimensions import Space
from trainables.assembly import batch_cost, reads_steps
from trainables.field_effects import TrialFacts, effective_task_values, normal_forms
from trainables.task_catalog import settled, splits
from trainables.training.normal_forms import ROUNDING_LOSS, compares_validations, uses_second_moment
from trainables.training.schedule import beta1, learning_rate

MAX_COMPARED_STEPS = 2000
"""Maximum number of steps for comparing learning rates, in addition to the first, last and turning points."""


@dataclass(frozen=True, slots=True)
class SweepFacts:
    """Properties of a spec that determine which task and training settings have an effect."""

    is_confirmed: bool = True
    has_stopper: bool = False
    """Whether an early stopper ends trials."""
    test_splits: tuple[str, ...] = ()
    """Test splits that trials read."""
    search_space: Space = field(default_factory=Space)
    """Search space whose ends are tried if the settings alone show no difference."""

    def longest(self, *systems: ParsedSettings) -> int:
        """Return the length in tokens of the longest input that trials of `systems` read."""
        split_infos = [info for system in systems for info in splits(system.task)]
        ends = [
            info.length_max for info in split_infos if info.role != "test" or info.name in self.test_splits
        ]
        return max([*ends, *(system.shape.length_max for system in systems)])


def changed_aspects(first: ParsedSettings, second: ParsedSettings, sweep: SweepFacts) -> tuple[str, ...]:
    """Return the aspects in which task and training settings of `second` act differently from `first`.

    Settings that only affect the loss of one step are left out, since passes of the models measure them.

    Returns:
        Words among `training` (the updates or the selection of weights), `measuring`, `writing` and `task`
        (shape or examples, as far as the settings determine them).
    """
    if first.train == second.train and first.task == second.task:
        return ()
    steps = sorted({*_compared_steps(first), *_compared_steps(second)})
    old, new = effective_settings(first, sweep, steps), effective_settings(second, sweep, steps)
    changes = {
        aspect: {name for name in new[aspect] if not _equal(old[aspect].get(name), new[aspect][name])}
        for aspect in new
    }
    decides = bool(changes["measuring"]) and (sweep.has_stopper or any(map(_uses_validation, (old, new))))
    if changes["sampling"]:
        # Written answers never affect the selection of weights, but may affect early stoppers.
        changes["measuring"] |= changes["sampling"]
        decides = sweep.has_stopper or (decides and changes["measuring"] != changes["sampling"])
    has_trained_change = changes["steps"] or changes["rates"] or changes["selecting"] or decides
    words = {
        "task": changes["task"] or old["task"].keys() != new["task"].keys(),
        "training": has_trained_change,
        "measuring": changes["measuring"] and not decides,
        "writing": changes["writing"],
    }
    return tuple(word for word, differs in words.items() if differs)


def _equal(first: Any, second: Any) -> bool:
    """Return whether two values of a setting are equal up to float32 rounding."""
    if isinstance(first, float) and isinstance(second, float):
        return isclose(first, second, rel_tol=ROUNDING_LOSS)
    if isinstance(first, list | tuple) and isinstance(second, list | tuple):
        return len(first) == len(second) and all(map(_equal, first, second))
    return bool(first == second)


def effective_settings(
    system: ParsedSettings, sweep: SweepFacts, steps: Sequence[int] = ()
) -> dict[str, dict[str, Any]]:
    """Return the task and training settings that have an effect, grouped by the aspect that they affect.

    Args:
        system: Settings of a trial.
        sweep: Properties of the spec.
        steps: Steps for comparing learning rates; by default steps that depend only on the training length.

    Returns:
        Normalised values by aspect and name: equivalent settings give equal values.
    """
    train, infos = system.train, splits(system.task)
    by_role = {info.role: info for info in infos}  # a task has one split of each of the roles train and valid
    valid_info, train_info, head = by_role["valid"], by_role["train"], system.shape.head
    has_one_length = head != "sequence" and train_info.length_min == train_info.length_max
    longest = max(train_info.length_max, system.shape.answer_length_max or 0)
    facts = TrialFacts(
        head=head,
        confirmed=sweep.is_confirmed,
        stopped=sweep.has_stopper,
        valid_examples=valid_info.examples,
        length=train_info.length_max if has_one_length else None,
        length_min=train_info.length_min,
        train_tokens=None if train_info.examples is None else train_info.examples * longest,
        answer_length_max=system.shape.answer_length_max,
        batch_cost=batch_cost(system.model) is not None,
    )
    settings = normal_forms(train, facts)
    steps_asked = [step for step in steps or _spread(train.steps) if step < train.steps]
    rates = [learning_rate(train, step) for step in steps_asked]
    settings["rates"] = {
        # Rates so small that all updates together are lost in rounding have no effect.
        "learning rate": rates if max(rates, default=0.0) * train.steps > ROUNDING_LOSS else None,
        # After one step each moment equals the gradient, for any decay.
        "beta1": [_retained_share(beta1(train, step)) for step in steps_asked] if train.steps > 1 else None,
        "beta2": _retained_share(train.betas[1]) if train.steps > 1 and uses_second_moment(train) else None,
    }
    split_names = [info.name for info in infos if info.role != "test"]
    # The data include the steps of samples; `steps_max` is only used to build models.
    shape = {name: value for name, value in asdict(system.shape).items() if name != "steps_max"}
    fields = effective_task_values(
        settled(system.task), [*split_names, *sweep.test_splits], counts_steps=reads_steps(system.model)
    )
    settings["task"] = {**fields, "shape": shape}
    return settings


def _retained_share(decay: float) -> float:
    """Return the share of an optimizer moment that an update retains; 0 if rounding removes that share."""
    return decay if decay >= ROUNDING_LOSS else 0.0


def _uses_validation(settings: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether any decision in a trial with these `effective_settings` uses validation results."""
    return compares_validations(SimpleNamespace(**settings["steps"], **settings["selecting"]))


def _compared_steps(system: ParsedSettings) -> list[int]:
    """Return the steps at which learning rates are compared, including those near turning points."""
    train = system.train
    turns = (0, train.warmup_steps, train.warmup_steps + train.hold_steps, train.steps)
    nearby_steps = {turn + shift for turn in turns for shift in (-2, -1, 0, 1)}
    return [*_spread(train.steps), *(step for step in nearby_steps if 0 <= step < train.steps)]


def _spread(steps: int) -> range:
    return range(0, steps, max(1, steps // MAX_COMPARED_STEPS))
