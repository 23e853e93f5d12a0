"""Select the pairs of arms that exchange the winners of their searches, for `confirm.cross`."""

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.errors import FaultCode
from orchestrator.plan.faults import Faults
from orchestrator.plan.types import Arm
from orchestrator.spec.types import Spec
from search_spaces.dimensions import Fixed, Value


def check_cross(spec: Spec, arms: Sequence[Arm], faults: Faults) -> None:
    """Add a fault if `confirm.cross` has nothing to exchange, or conflicts with other settings."""
    confirm = spec.confirm
    if confirm is None or not confirm.cross:
        return
    if spec.search is None:
        message = "requires a search, because arms exchange their best params"
        faults.add(message, "confirm", "cross", code=FaultCode.CONFLICTING_FIELDS)
    elif confirm.best > 1:
        message = f"requires confirm.best: 1, got {confirm.best}: a verdict compares one set of params"
        faults.add(message, "confirm", "cross", code=FaultCode.CONFLICTING_FIELDS)
    elif confirm.stop is not None:
        message = "must be left out with confirm.stop: decided arms run no further seeds"
        faults.add(message, "confirm", "cross", code=FaultCode.CONFLICTING_FIELDS)
    elif not any(crossed_pairs(arms)):
        message = "requires an arm that shares a searched field with its reference"
        faults.add(message, "confirm", "cross", code=FaultCode.CONFLICTING_FIELDS)


def crossed_pairs(arms: Sequence[Arm]) -> Iterator[tuple[Arm, Arm]]:
    """Yield each arm with its reference if the searches of both vary some field."""
    by_name = {arm.name: arm for arm in arms}
    for arm in arms:
        reference = by_name.get(arm.reference)
        if reference is not None and not arm.control and shared_fields(arm, reference):
            yield arm, reference


def searched_fields(arm: Arm) -> tuple[str, ...]:
    """Return the paths that the search of `arm` varies."""
    return tuple(entry.path for entry in arm.space.dimensions if not isinstance(entry.domain, Fixed))


def shared_fields(arm: Arm, other_arm: Arm) -> tuple[str, ...]:
    """Return the paths that the searches of both arms vary."""
    other_fields = searched_fields(other_arm)
    return tuple(path for path in searched_fields(arm) if path in other_fields)


def exchange_values(
    arm_values: Mapping[str, Value], other_values: Mapping[str, Value], shared_paths: Sequence[str]
) -> dict[str, Value]:
    """Return the winner of an arm with the values of another arm in the fields `shared_paths`.

    A shared field that the other winner does not have is left out: it has no meaning with its other values.
    """
    kept_values = {path: value for path, value in arm_values.items() if path not in shared_paths}
    return kept_values | {path: other_values[path] for path in shared_paths if path in other_values}
