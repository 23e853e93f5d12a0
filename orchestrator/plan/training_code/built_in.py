"""Planner interface of the built-in trainable: build, run and count its models and tasks."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.plan import checks
from orchestrator.plan.ablation_check.built_in_arms import check_built_in_arm
from orchestrator.plan.ablation_check.effective_settings import SweepFacts
from orchestrator.plan.ablation_check.equal_arms import check_equal_arms
from orchestrator.plan.ablation_check.probe import Probe
from orchestrator.plan.ablation_check.searched_fields import SearchingArm, check_dimensions
from orchestrator.plan.answer import check_answer
from orchestrator.plan.arms import BuiltInArm, Progress, resolve_built_in_arms
from orchestrator.plan.estimate import estimate_arm
from orchestrator.plan.faults import Faults
from orchestrator.plan.limits import size_problem
from orchestrator.plan.published.published_checks import check_built_in
from orchestrator.plan.reevaluation.posthoc import check_posthoc
from orchestrator.plan.same_tests import check_resampled, check_same_tests
from orchestrator.plan.space_check.dimensions import reason_not_searchable
from orchestrator.plan.space_check.draws import SettingsCheck
from orchestrator.plan.space_check.objectives import check_metrics_vary, check_objectives
from orchestrator.plan.space_check.spaces import common_space
from orchestrator.plan.training_code.settings import parse_settings, parse_task, validate_draw
from orchestrator.plan.types import ArmCheck, ArmEstimate
from orchestrator.spec.types import Search, Spec
from search_spaces.dimensions import Space
from trainables.metrics import Metric
from trainables.task_catalog import task_name
from trainables.training.metric_catalog import declared_metrics

if TYPE_CHECKING:
    from orchestrator.search.samplers import ComponentChoice  # this import loads Optuna


class BuiltIn:
    """The trainable of specs without `trainable`; its methods implement `TrainableForPlan`."""

    path: str | None = None

    def __init__(self, probe: Probe | None = None) -> None:
        """Use the cache of models and results in `probe`; by default start with an empty cache."""
        self._probe = probe or Probe()
        # The ablation check reuses the parameter counts.
        too_large = partial(size_problem, count_parameters=self._probe.parameters)
        self.settings_check = SettingsCheck(parse_settings, too_large, validate_draw)
        self._sweep = SweepFacts()

    def resolve(self, spec: Spec, faults: Faults, progress: Progress) -> list[BuiltInArm]:
        """Return the valid arms, the baseline first."""
        self._sweep = SweepFacts(
            is_confirmed=spec.confirm is not None,
            has_stopper=spec.search is not None and spec.search.stopper is not None,
            test_splits=spec.test_splits,
            search_space=Space() if spec.search is None else common_space(spec.search),
        )
        arms = resolve_built_in_arms(spec, faults, progress)
        if not arms or not arms[0].request.is_baseline:
            self._check_task(spec, faults)
        return arms

    def _check_task(self, spec: Spec, faults: Faults) -> None:
        """Add faults for splits that a valid task does not have, if the baseline itself is invalid."""
        task = parse_task(spec.settings)
        if task is None:
            return
        with suppress(ValueError):  # the baseline's faults include a task without splits
            checks.check_splits(spec, task, faults)

    def metrics(self, arms: Sequence[BuiltInArm]) -> tuple[Metric, ...]:
        """Return the declarations of the metrics that trials of these arms report."""
        systems = [arm.system for arm in arms]
        return declared_metrics(
            dict.fromkeys(task_name(system.task) for system in systems),
            {system.shape.head for system in systems},
        )

    def check(
        self,
        spec: Spec,
        arms: Sequence[BuiltInArm],
        stopper: "ComponentChoice | None",
        faults: Faults,
    ) -> None:
        """Add faults of the spec and its arms, except faults of the search space."""
        try:
            metrics = self.metrics(arms)
        except ValueError as error:
            faults.add(str(error), "baseline", "task")
            faults.raise_if_any()
        for arm in arms:
            checks.check_splits(spec, arm.system.task, faults)
            checks.check_gpu_settings(spec, arm, faults)
            checks.check_ranks(spec, arm, faults)
            if spec.search is not None:
                checks.check_stopper(stopper, spec.search, arm, metrics, faults)
        check_same_tests(arms, self._sweep.test_splits, faults)
        check_resampled(spec, arms, faults)
        check_built_in(spec, arms, self._probe, metrics, faults)
        check_posthoc(spec, arms, self._probe, faults)
        check_answer(spec, metrics, self._reported_metrics(arms[0]), faults)

    def _reported_metrics(self, arm: BuiltInArm) -> tuple[str, ...]:
        try:
            return self._probe.metrics(arm.system)
        except ValueError:
            return ()  # the ablation check refuses arms that cannot be run

    def reason_not_searchable(self, path: str, arms: Sequence[BuiltInArm]) -> str | None:
        """Return why a field that changes how trials are measured must not be searched.

        None if the field may be searched.
        """
        return reason_not_searchable(path, arms, self._sweep.search_space.paths)

    def check_arm(self, arm: BuiltInArm, reference: BuiltInArm | None, faults: Faults) -> ArmCheck | None:
        """Return the result of the ablation check; None if the arm cannot be trained."""
        return check_built_in_arm(arm, reference, self._probe, self._sweep, faults)

    def check_equal_arms(self, arms: Sequence[BuiltInArm], faults: Faults) -> None:
        """Add a fault for every arm that behaves like an earlier one with different settings."""
        check_equal_arms(arms, self._probe, self._sweep, faults)

    def check_objectives(self, search: Search, arm: BuiltInArm, faults: Faults) -> None:
        """Add faults for objectives that the arm does not report, or that are constant."""
        check_objectives(search, arm, self._probe, self.metrics([arm]), faults)

    def check_space(self, arm: BuiltInArm, space: Space, search: Search, faults: Faults) -> None:
        """Add faults for dimensions without an effect in the arm."""
        sweep = replace(self._sweep, search_space=space)
        check_dimensions(SearchingArm(arm, search, sweep, self.metrics([arm])), self._probe, faults)

    def check_metrics_vary(
        self, spec: Spec, spaces: Sequence[tuple[BuiltInArm, Space]], faults: Faults
    ) -> None:
        """Add faults for objectives and primary outcomes that are constant for all draws."""
        metrics = self.metrics([arm for arm, _ in spaces])
        check_metrics_vary(spec, spaces, self._probe, metrics, faults)

    def estimate(self, arm: BuiltInArm, trials: Mapping[str, int] | None, *, calibrate: bool) -> ArmEstimate:
        """Return the cost estimate of the arm."""
        return estimate_arm(arm, self._probe, trials, calibrate=calibrate)
