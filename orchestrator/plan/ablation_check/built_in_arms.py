"""Build and run every arm of the built-in trainable, and refuse arms without an effect."""

from collections.abc import Hashable, Iterator, Sequence
from math import isfinite
from typing import Any

from orchestrator.errors import FaultCode
from orchestrator.plan.ablation_check.differences import (
    BEHAVIOURAL_ASPECTS,
    MOVED_TRAINING_PASS,
    TRAINING_PASS,
    differ,
    evidence,
    is_evidence,
)
from orchestrator.plan.ablation_check.effective_settings import SweepFacts
from orchestrator.plan.ablation_check.passes import Pass
from orchestrator.plan.ablation_check.probe import LAYERS, Probe, is_custom
from orchestrator.plan.ablation_check.structure import tree_difference
from orchestrator.plan.ablation_check.weights import SEED, TestedWeights
from orchestrator.plan.arms import BuiltInArm, CheckedArm
from orchestrator.plan.faults import Faults
from orchestrator.plan.limits import size_problem
from orchestrator.plan.training_code.settings import ParsedSettings, parse_settings
from orchestrator.plan.types import ArmCheck
from search_spaces.dimensions import equality_key
from search_spaces.paths import MISSING, leaves, lookup, with_value
from trainables.assembly import batch_cost, build_model
from trainables.settings import limit_depth
from trainables.training.step import find_misfit

NUM_DIGITS = 4
"""Significant digits of losses and norms in a plan; later digits depend on the machine."""
MAX_LISTED_WEIGHTS = 4
"""Maximum number of weights in a note."""
SEVERAL_CHUNKS = Pass(TestedWeights.RANDOM, 256, trains=True)
"""Pass over several chunks, since a memory only gets a gradient from the second chunk."""
ALLOWED_NOTE = (
    "no difference to {reference} was found (permitted by allow_no_effect), so its results may "
    "equal those of {reference}"
)


def check_built_in_arm(
    arm: BuiltInArm, reference: BuiltInArm | None, probe: Probe, sweep: SweepFacts, faults: Faults
) -> ArmCheck | None:
    """Build and run `arm` and its reference.

    Args:
        arm: The arm to check.
        reference: The arm that it is compared with; None for the first baseline.
        probe: Cache of built models.
        sweep: Properties of the spec.
        faults: Collects the problems of the arm.

    Returns:
        Result of the check; None if the arm cannot be trained.
    """
    place = ("baseline",) if arm.request.is_baseline else ("arms", arm.request.label)
    try:
        structure = probe.structure(arm.system)
        _require_training(arm.system, probe)
        compared = arm if reference is None else reference
        run, reference_structure = probe.narrow(arm.system), probe.structure(compared.system)
        first = probe.measure(run, TRAINING_PASS)
        texts = evidence(probe, (compared.system, arm.system), sweep, arm.request.drop)
        # Notes on custom models are always collected, since collecting them may reveal a fault.
        has_notes = not probe.faults_only or is_custom(arm.system)
        noted = tuple(_notes(arm, reference, texts, probe, sweep)) if has_notes else ()
    except ValueError as error:
        message = f"{arm.name} cannot be trained: {error}"
        faults.add(message, *place, about=("trained", str(error)), code=FaultCode.ARM_CANNOT_BE_TRAINED)
        return None
    if reference is not None and arm.changes and not is_evidence(texts):
        if arm.request.allow_no_effect:
            noted = (*noted, ALLOWED_NOTE.format(reference=reference.name))
        else:
            _refuse_no_effect(arm, reference, texts, faults)
    return ArmCheck(
        arm=arm.name,
        parameters=structure.parameters,
        module_tree_added=tree_difference(reference_structure, structure),
        module_tree_removed=tree_difference(structure, reference_structure),
        flops_min=structure.flops_min,
        flops_max=structure.flops_max,
        loss=round_portably(first.loss),
        gradient_norm=round_portably(first.norm),
        functional_change=bool(BEHAVIOURAL_ASPECTS & set(texts)),
        evidence=texts,
        notes=noted,
        run_with=_run_with(arm.system, run),
    )


def _require_training(system: ParsedSettings, probe: Probe) -> None:
    """Raise ValueError if no machine could train `system`, or if its first step is not finite."""
    if (reason := size_problem(system, probe.parameters)) is not None:
        raise ValueError(reason)
    if system.train.parts > 1 or system.train.checkpoint_activations:
        meta_model = build_model(system.model, system.shape, SEED, "meta")
        if (reason := find_misfit(meta_model, system.train)) is not None:
            raise ValueError(reason)
    first = probe.measure(probe.narrow(system), TRAINING_PASS)
    if not isfinite(first.loss) or not isfinite(first.norm):
        raise ValueError(
            f"it must begin with a finite loss and gradient, got loss={first.loss} and gradient={first.norm}"
        )


def _run_with(system: ParsedSettings, run: ParsedSettings) -> dict[str, Any]:
    """Return the settings in which the model that was run is smaller than the model of `system`."""
    original_fields = dict(leaves(system.settings["model"], "model."))
    run_fields = limit_depth(run.model, LAYERS).model_dump(mode="json")
    return {path: value for path, value in leaves(run_fields, "model.") if original_fields.get(path) != value}


def round_portably(value: float) -> float:
    """Return `value` with the number of digits that is equal on every machine."""
    return float(f"{value:.{NUM_DIGITS}g}")


def _refuse_no_effect(arm: BuiltInArm, reference: BuiltInArm, aspects: Sequence[str], faults: Faults) -> None:
    paths = list(arm.request.declared)
    unused_text = f" They differ only in {' and '.join(aspects)}, which has no effect." if aspects else ""
    override = "" if arm.request.is_baseline else ", or set allow_no_effect: true if that is intended"
    message = (
        f"{arm.name} changes nothing against {reference.name}: with {', '.join(paths)} set, losses, "
        f"gradients, layers and counted operations are equal at several weights and input lengths."
        f"{unused_text} Remove the arm, or change a setting that has an effect{override}"
    )
    faults.add(message, *arm.request.keys(paths[0]), code=FaultCode.ARM_HAS_NO_EFFECT)


def _notes(
    arm: BuiltInArm, reference: BuiltInArm | None, aspects: Sequence[str], probe: Probe, sweep: SweepFacts
) -> Iterator[str]:
    """Yield warnings about the arm; raise ValueError if the arm cannot be run."""
    if reference is not None:
        yield from _idle_fields(arm, reference, probe, sweep)
        if aspects == ("measuring",):
            yield "it trains identically to its reference; only its measurements differ"
    parts, full_cost = arm.system.train.parts, batch_cost(arm.system.model)
    if parts > 1 and full_cost is not None and arm.system.train.auxiliary_weight:
        yield f"{full_cost} is computed for each of the {parts} parts of a batch, as on {parts} GPUs"
    unreached_names = _weights_without_gradient(reference, probe) if reference is not None else ()
    if unreached := [name for name in _weights_without_gradient(arm, probe) if name not in unreached_names]:
        remainder = (
            f" and {len(unreached) - MAX_LISTED_WEIGHTS} more" if len(unreached) > MAX_LISTED_WEIGHTS else ""
        )
        yield (
            f"no gradient reaches {', '.join(unreached[:MAX_LISTED_WEIGHTS])}{remainder} in any pass of the "
            f"check, also with inputs of {min(SEVERAL_CHUNKS.length, arm.system.shape.length_max)} tokens"
        )


def _weights_without_gradient(arm: BuiltInArm, probe: Probe) -> list[str]:
    """Return the weights without a gradient."""
    narrow = probe.narrow(arm.system)
    parameter_names = list(probe.structure(narrow).shapes)
    for training_pass in (TRAINING_PASS, MOVED_TRAINING_PASS, SEVERAL_CHUNKS):
        if parameter_names:
            reached = probe.measure(narrow, training_pass).gradient or {}
            parameter_names = [name for name in parameter_names if name not in reached]
    return parameter_names


def _idle_fields(arm: BuiltInArm, reference: BuiltInArm, probe: Probe, sweep: SweepFacts) -> Iterator[str]:
    """Yield warnings for changed fields that have no effect if the arm's other changes are made."""
    paths = () if arm.request.is_baseline else tuple(arm.request.changes)
    for path in paths if len(paths) > 1 else ():
        reference_value = lookup(reference.system.settings, path)
        if reference_value is MISSING or path.endswith(".name"):
            continue
        checked_system = parse_settings(with_value(arm.system.settings, path, reference_value))
        if isinstance(checked_system, ParsedSettings) and not differ(
            probe, checked_system, arm.system, sweep
        ):
            advice = "leave it out, or set the field that it needs"
            yield f"setting {path} has no effect next to the other changes; {advice}"


def check_same(arms: Sequence[CheckedArm[Any]], faults: Faults) -> None:
    """Add faults for arms, and for grid cells, that have the same settings as an earlier one."""
    arms_by_key: dict[Hashable, CheckedArm[Any]] = {}
    same = set[str]()
    for arm in arms:
        if arm.request.control:
            continue
        equal_arm = arms_by_key.setdefault(equality_key(arm.system.settings), arm)
        if equal_arm is arm or arm.reference in same:  # if two cells are the same, so are all their arms
            continue
        if arm.request.is_baseline:
            same.add(arm.name)
            cell, other_cell = arm.request.cell, equal_arm.request.cell
            differing = (path for path in cell if equality_key(cell[path]) != equality_key(other_cell[path]))
            keys = arm.request.keys(next(differing, next(iter(cell))))
        elif equal_arm.request.is_baseline:
            continue
        else:
            keys = ("arms", arm.request.label)
        message = f"{arm.name} has the same settings as {equal_arm.name}: remove one of them"
        faults.add(message, *keys, code=FaultCode.ARM_HAS_NO_EFFECT)
