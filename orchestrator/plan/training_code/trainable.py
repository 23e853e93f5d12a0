"""Protocol of a trainable for the planner, implemented for the built-in and for custom trainables."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator.plan.arms import CheckedArm, Progress
from orchestrator.plan.faults import Faults
from orchestrator.plan.space_check.draws import SettingsCheck
from orchestrator.plan.types import ArmCheck, ArmEstimate
from orchestrator.spec.types import Search, Spec
from search_spaces.dimensions import Space
from trainables.metrics import Metric

if TYPE_CHECKING:
    from orchestrator.search.samplers import ComponentChoice  # this import loads Optuna

Arms = Sequence[CheckedArm[Any]]


class TrainableForPlan(Protocol):
    """A trainable as used by the planner; its methods add problems to `faults`."""

    path: str | None
    """`module:name`; None for the built-in one."""
    settings_check: SettingsCheck
    """Checks whether settings can be trained."""

    def resolve(self, spec: Spec, faults: Faults, progress: Progress) -> list[CheckedArm[Any]]:
        """Return every arm with valid settings, the baseline first.

        Args:
            spec: The spec.
            faults: Collects the problems of all other arms.
            progress: Called with the number of arms that have been read.
        """

    def metrics(self, arms: Arms) -> tuple[Metric, ...]:
        """Return the metrics that trials of these arms report, the most important first."""

    def check(self, spec: Spec, arms: Arms, stopper: "ComponentChoice | None", faults: Faults) -> None:
        """Add faults of the spec and its arms, except faults of the search space."""

    def reason_not_searchable(self, path: str, arms: Arms) -> str | None:
        """Return why a field that changes how trials are measured must not be searched.

        None if the field may be searched.
        """

    def check_arm(
        self, arm: CheckedArm[Any], reference: CheckedArm[Any] | None, faults: Faults
    ) -> ArmCheck | None:
        """Return the result of building the arm and its reference; None if the arm cannot be built."""

    def check_equal_arms(self, arms: Arms, faults: Faults) -> None:
        """Add a fault for every arm that behaves like an earlier one with different settings."""

    def check_objectives(self, search: Search, arm: CheckedArm[Any], faults: Faults) -> None:
        """Add faults for objectives that the arm does not report, or that are constant."""

    def check_space(self, arm: CheckedArm[Any], space: Space, search: Search, faults: Faults) -> None:
        """Add faults for dimensions without an effect in the arm."""

    def check_metrics_vary(
        self, spec: Spec, spaces: Sequence[tuple[CheckedArm[Any], Space]], faults: Faults
    ) -> None:
        """Add faults for objectives and primary outcomes that are constant for all draws."""

    def estimate(
        self, arm: CheckedArm[Any], trials: Mapping[str, int] | None, *, calibrate: bool
    ) -> ArmEstimate:
        """Return the cost estimate of the arm for these numbers of trials by phase."""
