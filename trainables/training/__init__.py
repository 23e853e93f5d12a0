"""One training loop for every model and task. Settings load without torch, the rest on first use."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainables.training.workload import NONDETERMINISTIC as NONDETERMINISTIC
    from trainables.training.workload import Training as Training


def __getattr__(name: str) -> Any:
    if name in ("NONDETERMINISTIC", "Training"):
        from trainables.training import workload

        return getattr(workload, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
