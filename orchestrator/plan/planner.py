"""Create a plan from a spec, or report all faults of the spec; it starts no process and writes no file."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.errors import FaultCode
from orchestrator.files.json_values import to_json_values
from orchestrator.identity import digest
from orchestrator.plan import checks
from orchestrator.plan.ablation_check.built_in_arms import check_same
from orchestrator.plan.ablation_check.probe import Probe
from orchestrator.plan.answer import SpreadLookup, answer_plan, check_stop, with_spread
from orchestrator.plan.arms import CheckedArm
from orchestrator.plan.budget import check_budget, check_flops_limits, sweep_limits
from orchestrator.plan.crossing import check_cross
from orchestrator.plan.estimate import count_trials_by_arm
from orchestrator.plan.faults import Faults
from orchestrator.plan.plan_input import check_size, count_arms, read_plannable_spec
from orchestrator.plan.planned_trials import confirm_seeds, planned_trials
from orchestrator.plan.power import power, power_without_verdict
from orchestrator.plan.space_check import constraints
from orchestrator.plan.space_check.constraints import check_constraints, check_predicates
from orchestrator.plan.space_check.dimensions import check_dimensions
from orchestrator.plan.space_check.draws import check_draws
from orchestrator.plan.space_check.first import (
    BestParamsLookup,
    check_first,
    with_first_points,
    with_found_points,
)
from orchestrator.plan.space_check.spaces import arm_space, check_grid, common_space
from orchestrator.plan.training_code.built_in import BuiltIn
from orchestrator.plan.training_code.custom import CustomTrainable
from orchestrator.plan.training_code.settings import to_stored_settings
from orchestrator.plan.training_code.trainable import TrainableForPlan
from orchestrator.plan.types import Arm, ArmCheck, ArmEstimate, ConfirmPlan, Plan, Power, SearchPlan
from orchestrator.spec.combine import removed_components
from orchestrator.spec.load import SpecFile
from orchestrator.spec.types import Search, Spec
from orchestrator.trials import PlannedTrial
from search_spaces.dimensions import Space, Value
from search_spaces.predicates import PredicateFailed
from search_spaces.wording import amount
from trainables.custom.outside import load
from trainables.task_catalog import splits

if TYPE_CHECKING:
    from orchestrator.search.samplers import ComponentChoice  # this import loads Optuna

OnProgress = Callable[[str], None]
"""Callback for progress messages: a plan of thousands of arms takes minutes."""


def plan(
    source: Spec | SpecFile,
    *,
    calibrate: bool = False,
    on_progress: OnProgress = lambda _: None,
    probe: Probe | None = None,
) -> Plan:
    """Return the plan of `source`: checked arms, cost estimates, and all trials with ids.

    The same spec gives the same plan, except for the durations of `calibrate`.

    Args:
        source: The spec. Faults of a `SpecFile` include line numbers.
        calibrate: Whether to time a few steps of every arm.
        on_progress: Called with progress messages.
        probe: Cache of built models, shared between plans.

    Raises:
        PlanError: The spec has faults; the error lists all of them.
    """
    spec = source.spec if isinstance(source, SpecFile) else source
    faults = Faults(source)
    check_size(spec, faults)
    stopper = None if spec.search is None else _check_search(spec.search, faults)
    trainable = _load_trainable(spec, faults, probe, on_progress)
    resolved = trainable.resolve(spec, faults, on_progress)
    _check_seeds(spec, resolved, faults)
    on_progress(f"comparing {amount(len(resolved), 'arm')} with each other")
    _check_spec(spec, trainable, resolved, stopper, faults)
    proofs, arms = _check_arms(spec, trainable, resolved, on_progress, faults)
    arms = _add_first_points(arms, resolved, spec, trainable, faults)
    faults.raise_if_any()
    search, confirm, posthoc = _search_plan(spec), _confirm_plan(spec), _overrides(spec)
    limits = sweep_limits(spec)
    trials = tuple(planned_trials(arms, search, confirm, posthoc, limits))
    prices = _estimate_arms(trainable, resolved, trials, on_progress, calibrate=calibrate)
    check_flops_limits(limits, arms, prices, search, faults)
    faults.raise_if_any()
    metrics, num_compared = trainable.metrics(resolved), _num_compared(arms, spec)
    answer = answer_plan(spec.answer, confirm, search, metrics, num_compared) if confirm else None
    new_plan = Plan(
        name=spec.name,
        question=spec.question,
        spec_digest=spec.digest,
        arms=tuple(arms),
        search=search,
        confirm=confirm,
        posthoc=posthoc,
        resources=spec.resources,
        wall_clock_hours=spec.budget.wall_clock_hours if spec.budget else None,
        trials=trials,
        proofs=tuple(proofs),
        prices=prices,
        published=spec.published_rows,
        trainable=trainable.path,
        answer=answer,
        metrics=metrics,
        factors=spec.combine.of if spec.combine is not None and spec.combine.way == "all" else (),
        limits=limits,
        keep=spec.keep,
        selected_on=_selected_on(resolved, spec) if spec.trainable is None else (),
        continue_on_error=spec.on_error == "continue",
    )
    return replace(new_plan, power=_power(new_plan, spec, faults_only=bool(probe and probe.faults_only)))


def _power(plan: Plan, spec: Spec, *, faults_only: bool) -> Power | None:
    """Return the effects that the seeds can detect; with `faults_only` only why there is no verdict."""
    if plan.confirm is None or plan.answer is None:
        return None
    if faults_only:
        return power_without_verdict(plan.confirm, plan.answer, search=plan.search)
    spread, baseline = spec.answer.spread if spec.answer else None, plan.baseline.settings
    return power(plan.confirm, plan.answer, spread, plan.published, baseline, search=plan.search)


def _num_compared(arms: Sequence[Arm], spec: Spec) -> int:
    """Return the number of comparisons per outcome: one per arm with a reference, and one per pooled arm."""
    compared_arms = [arm for arm in arms if arm.reference and not arm.control]
    pooled_names = {arm.name_in_context for arm in compared_arms} if spec.answer and spec.answer.pool else ()
    return len(compared_arms) + len(pooled_names)


def _selected_on(arms: Sequence[CheckedArm[Any]], spec: Spec) -> tuple[str, ...]:
    """Return confirmed test splits whose examples are also used for selection."""
    selection_contents = {info.holds for arm in arms for info in splits(arm.system.task)}
    return tuple(split for split in spec.test_splits if split in selection_contents)


def _check_search(search: Search, faults: Faults) -> "ComponentChoice | None":
    """Add faults of a search that do not depend on the arms; return its stopper."""
    check_first(search, faults)
    check_predicates(search, faults)
    return checks.check_samplers(search, faults)


def _check_seeds(spec: Spec, resolved: Sequence[CheckedArm[Any]], faults: Faults) -> None:
    """Add faults of the seeds; raise `PlanError` with all faults if there is no valid baseline."""
    checks.check_seeds(spec, _search_plan(spec), faults)
    if not resolved or not resolved[0].request.is_baseline:
        faults.raise_if_any()


def _check_spec(
    spec: Spec,
    trainable: TrainableForPlan,
    arms: Sequence[CheckedArm[Any]],
    stopper: "ComponentChoice | None",
    faults: Faults,
) -> None:
    """Add faults of the spec and its arms, except faults of search spaces."""
    trainable.check(spec, arms, stopper, faults)
    metrics = trainable.metrics(arms)
    check_budget(spec, trainable.path, metrics, faults)
    check_stop(spec, _confirm_plan(spec), _search_plan(spec), metrics, faults)
    check_same(arms, faults)


def _check_arms(
    spec: Spec,
    trainable: TrainableForPlan,
    resolved: Sequence[CheckedArm[Any]],
    on_progress: OnProgress,
    faults: Faults,
) -> tuple[list[ArmCheck], list[Arm]]:
    """Return the results of the ablation check, and the arms with their search spaces."""
    by_name = {arm.name: arm for arm in resolved}
    if spec.search is not None:
        check_dimensions(
            resolved, spec.search, lambda path: trainable.reason_not_searchable(path, resolved), faults
        )
    proofs, arms = [], []
    for number, arm in enumerate(resolved):
        on_progress(f"building and checking arm {number + 1:,} of {len(resolved):,}, {arm.name}")
        arm_check = trainable.check_arm(arm, by_name.get(arm.reference), faults)
        searched_space = Space()
        if spec.search is not None:
            # A built-in arm without a result of the check cannot be trained; custom code may have no check.
            can_be_trained = arm_check is not None or trainable.path is not None
            searched_space = _search_space(
                arm, spec, spec.search, trainable, faults, can_be_trained=can_be_trained
            )
        proofs += [] if arm_check is None else [arm_check]
        arms.append(_make_arm(arm, searched_space, trainable.path, spec))
    return proofs, arms


def _load_trainable(
    spec: Spec, faults: Faults, probe: Probe | None, on_progress: OnProgress
) -> TrainableForPlan:
    """Return the trainable of `spec`; raise `PlanError` if it cannot be imported."""
    if spec.trainable is None:
        return BuiltIn(probe)
    on_progress(f"importing {spec.trainable}")
    try:
        return CustomTrainable(load(spec.trainable), on_progress)
    except ValueError as error:
        faults.add(str(error), "trainable", code=FaultCode.CUSTOM_CODE)
        faults.raise_if_any()
        raise AssertionError("a fault was added") from error


def _estimate_arms(
    trainable: TrainableForPlan,
    arms: Sequence[CheckedArm[Any]],
    trials: Sequence[PlannedTrial],
    on_progress: OnProgress,
    *,
    calibrate: bool,
) -> tuple[ArmEstimate, ...]:
    counts, prices = count_trials_by_arm(trials), []
    for number, arm in enumerate(arms):
        on_progress(f"estimating arm {number + 1:,} of {len(arms):,}")
        prices.append(trainable.estimate(arm, counts.get(arm.name), calibrate=calibrate))
    return tuple(prices)


def _search_space(
    arm: CheckedArm[Any],
    spec: Spec,
    search: Search,
    trainable: TrainableForPlan,
    faults: Faults,
    *,
    can_be_trained: bool,
) -> Space:
    trainable.check_objectives(search, arm, faults)
    space = arm_space(arm, search, faults)
    try:
        if can_be_trained:  # otherwise drawn values would repeat the error of the arm
            space = check_draws(arm, space, trainable.settings_check, spec, faults)
        check_grid(arm, space, spec, search, faults)
    except PredicateFailed as error:
        message, place = str(error), constraints.PLACE
        faults.add(message, *place, about=("predicate", message), code=FaultCode.CUSTOM_CODE)
        return space
    if can_be_trained:
        trainable.check_space(arm, space, search, faults)
    return space


def _add_first_points(
    arms: list[Arm],
    resolved: Sequence[CheckedArm[Any]],
    spec: Spec,
    trainable: TrainableForPlan,
    faults: Faults,
) -> list[Arm]:
    """Return the arms with their first points; note problems that involve several arms.

    If there are faults already, only check that the fields of constraints exist.
    """
    spaces = [(arm, planned.space) for arm, planned in zip(resolved, arms, strict=True)]
    if faults:
        if spec.search is not None and len(resolved) == count_arms(spec):
            check_constraints(spec.search, spaces, faults, has_effect=False)
        return arms
    check_cross(spec, arms, faults)
    trainable.check_equal_arms(resolved, faults)
    trainable.check_metrics_vary(spec, spaces, faults)
    if spec.search is None:
        return arms
    check_constraints(spec.search, spaces, faults)
    return with_first_points(resolved, arms, trainable.settings_check, spec.search, faults)


def plan_file(
    path: Path,
    overrides: Sequence[str] = (),
    profile: str | None = None,
    *,
    calibrate: bool = False,
    on_progress: OnProgress = lambda _: None,
    probe: Probe | None = None,
    best_params_of: BestParamsLookup | None = None,
    spread_of: SpreadLookup | None = None,
    parsed: SpecFile | None = None,
) -> tuple[SpecFile, Plan]:
    """Return the spec at `path` with `profile` and `overrides` applied, and its plan.

    Args:
        path: YAML file of the spec.
        overrides: `field=value` texts.
        profile: Name of a profile of the spec.
        calibrate: Whether to time a few steps of every arm.
        on_progress: Called with progress messages.
        probe: Cache of built models, shared between plans.
        best_params_of: Returns the winners of other sweeps, for first points; the returned spec contains
            them.
        spread_of: Returns the spread of another sweep over seeds; the returned spec contains it.
        parsed: Result of `read_plannable_spec`, if the file has been read already.

    Raises:
        SpecError: The file has faults; the error lists all of them.
        OversizedSpec: The spec requests an impossible size.
        PlanError: The planner has found faults; the error lists all of them.
    """
    source = parsed if parsed is not None else read_plannable_spec(path, overrides, profile)
    if best_params_of is not None:
        source = with_found_points(source, best_params_of)
    if spread_of is not None:
        source = with_spread(source, spread_of)
    return source, plan(source, calibrate=calibrate, on_progress=on_progress, probe=probe)


def _make_arm(resolved: CheckedArm[Any], space: Space, trainable: str | None, spec: Spec) -> Arm:
    shared_paths = () if spec.search is None else common_space(spec.search).paths
    request, settings = resolved.request, resolved.system.settings
    identity_parts: list[Any] = [trainable]
    if trainable is None:
        settings, identity_parts = to_stored_settings(settings), []
    if request.control:  # the trials of a control are not those of the baseline
        identity_parts.append({"control": request.label})
    return Arm(
        name=resolved.name,
        why=request.why,
        settings=settings,
        changes=resolved.changes,
        space=space,
        dropped=tuple(path for path in shared_paths if path not in space.paths),
        digest=digest(settings, to_json_values(space), *identity_parts),
        reference=resolved.reference,
        without=removed_components(spec).get(request.label, ()),
        context=request.context,
        name_in_context=request.name_in_context if request.context else "",
        control=request.control,
    )


def _search_plan(spec: Spec) -> SearchPlan | None:
    if spec.search is None:
        return None
    search = spec.search
    return SearchPlan(
        search.trials_per_arm, search.sampler, search.stopper, search.objectives, search.seed, search.repeats
    )


def _confirm_plan(spec: Spec) -> ConfirmPlan | None:
    if spec.confirm is None:
        return None
    confirm = spec.confirm
    seeds = confirm_seeds(confirm.seeds, spec.repeats)
    return ConfirmPlan(
        confirm.best,
        seeds,
        confirm.splits,
        confirm.stop,
        confirm.halting_examples,
        cross=confirm.cross,
        resample_data=confirm.resample_data,
    )


def _overrides(spec: Spec) -> tuple[Mapping[str, Value], ...]:
    """Return one mapping of overrides per posthoc value; an override changes no other field."""
    return tuple({path: value} for path, values in spec.posthoc.items() for value in values)
