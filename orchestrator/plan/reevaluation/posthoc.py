"""Check re-evaluations of confirmed checkpoints: each must be possible and can change the results."""

from collections.abc import Mapping, Sequence

from orchestrator.errors import FaultCode
from orchestrator.plan.ablation_check.differences import draws, evaluates_alike
from orchestrator.plan.ablation_check.effective_settings import SweepFacts, effective_settings
from orchestrator.plan.ablation_check.probe import Probe
from orchestrator.plan.arms import BuiltInArm
from orchestrator.plan.faults import Faults
from orchestrator.plan.space_check.spaces import assign_params, common_space
from orchestrator.plan.training_code.settings import ParsedSettings, parse_settings
from orchestrator.spec.types import Spec
from search_spaces.algebra import drop_dimensions
from search_spaces.dimensions import Space, Value, are_equal
from search_spaces.paths import MISSING, leaves, lookup, with_value
from search_spaces.wording import format_value, hint
from trainables.field_effects import effective_task_values
from trainables.task_catalog import settled, splits, training_only


def check_posthoc(spec: Spec, arms: Sequence[BuiltInArm], probe: Probe, faults: Faults) -> None:
    """Add faults for posthoc settings that do not exist, change weights, or do not affect the evaluation."""
    for path, values in spec.posthoc.items():
        if lookup(arms[0].system.settings, path) is MISSING:
            names = [name for name, _ in leaves(arms[0].system.settings) if not name.startswith("train.")]
            message = f"the baseline has no field {path}. {hint(path, names)}"
            faults.add(message, "posthoc", path, code=FaultCode.UNKNOWN_FIELD)
            continue
        arms_with_value = [arm for arm in arms if lookup(arm.system.settings, path) is not MISSING]
        refusals = [
            _check_value(spec, arms_with_value, (path, place), probe, faults) for place in range(len(values))
        ]
        if any(refusals):
            continue
        if reason := _refuse_unused_values(spec, arms_with_value, path, values, probe):
            message = f"has no effect on re-evaluations: {reason}; remove it"
            faults.add(message, "posthoc", path, code=FaultCode.RE_EVALUATION_HAS_NO_EFFECT)
        else:
            _check_duplicate_values(spec, arms_with_value, path, probe, faults)


def _check_value(
    spec: Spec, arms: Sequence[BuiltInArm], at: tuple[str, int], probe: Probe, faults: Faults
) -> bool:
    """Add the faults of one posthoc value; return whether there are any."""
    (path, place), is_refused = at, False
    value = spec.posthoc[path][place]
    for arm in arms:
        if reason := _refuse_value(spec, arm, path, value, probe):
            faults.add(f"{arm.name} {reason}", "posthoc", path, place, about=(path, place, reason))
            is_refused = True
    if not is_refused and all(_has_value(spec, arm, path, value) for arm in arms):
        message = (
            f"must differ from the trained value: every arm already has {format_value(value)}, and its "
            "confirm trials measure that; leave it out"
        )
        faults.add(message, "posthoc", path, place)
        return True
    return is_refused


def _has_value(spec: Spec, arm: BuiltInArm, path: str, value: Value) -> bool:
    if _is_searched(spec, arm, path):
        return False
    value_in_arm = lookup(arm.system.settings, path)
    return not isinstance(value_in_arm, list | dict) and are_equal(value_in_arm, value)


def _refuse_value(spec: Spec, arm: BuiltInArm, path: str, value: Value, probe: Probe) -> str | None:
    """Return why a checkpoint of `arm` cannot be evaluated with `value` at `path`; None if it can."""
    checked_system = parse_settings(with_value(arm.system.settings, path, value))
    if isinstance(checked_system, list):
        reasons = "; ".join(problem.message for problem in checked_system)
        return f"cannot have {path} = {format_value(value)}: {reasons}"
    try:
        original_structure = probe.structure(arm.system)
    except ValueError:
        return None  # the ablation check refuses arms that cannot be built
    try:
        structure = probe.structure(checked_system)
    except ValueError as error:
        return f"cannot be built with {path} = {format_value(value)}: {error}"
    if original_structure.checkpoint_shapes != structure.checkpoint_shapes:
        return (
            f"has weights of other shapes with {path} = {format_value(value)}, "
            "so a trained checkpoint cannot be loaded: make this setting an arm"
        )
    return _refuse_other_data(spec, arm.system, checked_system, f"{path} = {format_value(value)}")


def _refuse_other_data(spec: Spec, first: ParsedSettings, second: ParsedSettings, setting: str) -> str | None:
    """Return why a model trained with `first` cannot be evaluated on the splits of `second`.

    None if the model can be evaluated.
    """
    first_splits, second_splits = (
        {split.name for split in splits(system.task)} for system in (first, second)
    )
    if lost_splits := (first_splits - second_splits).intersection(spec.test_splits):
        return f"has no split {', '.join(sorted(lost_splits))} with {setting}"
    if _learned_fields(first) != _learned_fields(second):
        return (
            f"was trained with another value than {setting}, so its training data may contain test examples "
            "of the new value: make it an arm or a context"
        )
    return None


def _learned_fields(system: ParsedSettings) -> dict[str, Value]:
    """Return the task fields that affect training or selection, except those that no test depends on."""
    split_names = [info.name for info in splits(system.task) if info.role != "test"]
    training_fields = training_only(system.task)  # reported as settings without an effect
    values = effective_task_values(settled(system.task), split_names)
    return {name: value for name, value in values.items() if name not in training_fields}


def _refuse_unused_values(
    spec: Spec, arms: Sequence[BuiltInArm], path: str, values: Sequence[Value], probe: Probe
) -> str | None:
    """Return why no value of `path` affects any arm; None if some value does."""
    root, _, field = path.partition(".")
    if root == "task" and all(field in training_only(arm.system.task) for arm in arms):
        return "it changes only the training data"
    if root == "train" and all(arm.system.shape.head != "sequence" for arm in arms):
        return "no arm generates answers token by token"
    if any(_is_searched(spec, arm, path) for arm in arms):
        return None
    pairs = [(arm, (None, value)) for arm in arms for value in values]
    is_unread = all(_gives_equal_results(spec, arm, path, pair, probe) for arm, pair in pairs)
    return _why_no_effect(arms, root, field) if is_unread else None


def _why_no_effect(arms: Sequence[BuiltInArm], root: str, field: str) -> str:
    """Return why a setting has no effect although its field is read."""
    if root == "task":
        return "no split of confirm.splits depends on it"
    if field == "length_penalty" and all(arm.system.train.beam_size == 1 for arm in arms):
        return "with beam_size 1, decoding is greedy"
    effect_text = "evaluation gives equal results" if root == "model" else "answers are equal"
    return f"{effect_text} with every value, in every arm"


def _check_duplicate_values(
    spec: Spec, arms: Sequence[BuiltInArm], path: str, probe: Probe, faults: Faults
) -> None:
    """Add faults for values that give every arm the results of its training or of an earlier value."""
    values = spec.posthoc[path]
    for place, value in enumerate(values):
        is_searched = any(_is_searched(spec, arm, path) for arm in arms)
        earlier_values = [*([] if is_searched else [None]), *values[:place]]
        for earlier_value in earlier_values:
            if all(_gives_equal_results(spec, arm, path, (earlier_value, value), probe) for arm in arms):
                earlier_text = "the trained value" if earlier_value is None else format_value(earlier_value)
                faults.add(
                    f"must change a result compared with {earlier_text}, got {format_value(value)}, which "
                    "gives every arm equal results; leave it out",
                    *("posthoc", path, place),
                )
                break


def _is_searched(spec: Spec, arm: BuiltInArm, path: str) -> bool:
    """Return whether the search of `arm` draws the value at `path`."""
    if spec.search is None or path in arm.request.drop:
        return False
    return path in common_space(spec.search).paths


def _gives_equal_results(
    spec: Spec, arm: BuiltInArm, path: str, values: tuple[Value | None, Value], probe: Probe
) -> bool:
    """Return whether a checkpoint of `arm` gives the same results with either value at `path`.

    None denotes the trained value. The results must be the same for all checked draws of the other
    searched fields.
    """
    space = Space() if spec.search is None else drop_dimensions(common_space(spec.search), arm.request.drop)
    for draw in ({}, *draws(space, arm.system.settings, [path])):
        settings = assign_params(arm.system.settings, draw)
        if settings is None:
            continue
        pair = [
            parse_settings(settings if value is None else with_value(settings, path, value))
            for value in values
        ]
        first, second = pair
        if not isinstance(first, ParsedSettings) or not isinstance(second, ParsedSettings):
            continue
        if not _evaluates_equally(spec, path.partition(".")[0], first, second, probe):
            return False
    return True


def _evaluates_equally(
    spec: Spec, root: str, first: ParsedSettings, second: ParsedSettings, probe: Probe
) -> bool:
    """Return whether all results on the confirm splits are the same for both systems.

    The systems differ in the part `root`.
    """
    sweep = SweepFacts(test_splits=spec.test_splits)
    if root == "task":
        return bool(_test_fields(first, sweep) == _test_fields(second, sweep))
    if root == "train":
        writings = [effective_settings(system, sweep)["writing"] for system in (first, second)]
        return first.shape.head != "sequence" or writings[0] == writings[1]
    try:
        return evaluates_alike(probe, first, second, sweep)
    except ValueError:
        return False  # the ablation check refuses arms that cannot be run


def _test_fields(system: ParsedSettings, sweep: SweepFacts) -> Mapping[str, Value]:
    """Return the task fields that change the test examples."""
    return effective_task_values(settled(system.task), sweep.test_splits)
