"""Run hyperparameter searches and ablation studies of your training code from Python.

    from haltsweep import Sweep

    def train(settings, trial):
        trial.report(1, {"valid/loss": settings["lr"]})

    sweep = Sweep("study.yaml", train)
    sweep.run()
    sweep.report().trials.to_pandas()

In training code, `from haltsweep import Trial, current_trial` is fast: it does not import the code that plans
and runs sweeps.
"""

from typing import TYPE_CHECKING, Any

from haltsweep.trial import Trial, current_trial

if TYPE_CHECKING:
    from haltsweep.sweep import Sweep, SweepReport

__all__ = ["Sweep", "SweepReport", "Trial", "current_trial"]


def __getattr__(name: str) -> Any:
    if name in ("Sweep", "SweepReport"):
        from haltsweep import sweep

        return getattr(sweep, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
