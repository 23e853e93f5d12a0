"""What the planner asks of whatever trains: of the built-in trainable, and of one that a spec names."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from orchestrator.plan.arms import CheckedArm, Progress
from orchestrator.plan.faults import Faults
from orchestrator.plan.space_check.draws import Trying
from orchestrator.plan.types import ArmPrice, ArmProof
from orchestrator.spec.types import Search, Spec
from search_spaces.dimensions import Space
from trainables.metrics import Metric

if TYPE_CHECKING:
    from orchestrator.search.samplers import Chosen  # which loads Optuna

Arms = Sequence[CheckedArm[Any]]


class TrainableForPlan(Protocol):
    """A trainable as a plan sees it. Whatever is wrong goes to `faults`."""

    path: str | None
    """`module:name`; None for the built-in one."""
    trying: Trying
    """Says of any settings whether they can be trained."""

    def resolve(self, spec: Spec, faults: Faults, progress: Progress) -> list[CheckedArm[Any]]:
        """Every arm whose settings are right, the baseline first; `progress` hears how many were read."""

    def metrics(self, arms: Arms) -> tuple[Metric, ...]:
        """What is declared of the quantities that trials of these arms report, most wanted first."""

    def check(self, spec: Spec, arms: Arms, stopper: "Chosen | None", faults: Faults) -> None:
        """Note what else is wrong with the spec and its arms, apart from the search."""

    def measures(self, path: str, arms: Arms) -> str | None:
        """Why a field is for nobody to search: it changes how trials are measured. None where it does not."""

    def prove(
        self, arm: CheckedArm[Any], reference: CheckedArm[Any] | None, faults: Faults
    ) -> ArmProof | None:
        """What building the arm shows beside the one it is compared with; None if it cannot be built."""

    def check_twins(self, arms: Arms, faults: Faults) -> None:
        """Note arms of other settings that behave alike."""

    def check_objectives(self, search: Search, arm: CheckedArm[Any], faults: Faults) -> None:
        """Note objectives that the arm does not report, or that are none."""

    def check_space(self, arm: CheckedArm[Any], space: Space, search: Search, faults: Faults) -> None:
        """Note dimensions that change nothing in the arm."""

    def check_movement(
        self, spec: Spec, spaces: Sequence[tuple[CheckedArm[Any], Space]], faults: Faults
    ) -> None:
        """Note objectives and primary outcomes that cannot move, whatever is drawn."""

    def price(self, arm: CheckedArm[Any], trials: Mapping[str, int] | None, *, calibrate: bool) -> ArmPrice:
        """What the arm costs with so many trials a phase."""
