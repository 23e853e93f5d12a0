"""A Lightning callback that reports a trial's metrics and saves checkpoints for resuming the trial.

def train(settings, trial):
    reports = LightningTrialCallback(trial)
    trainer = Trainer(callbacks=[reports], max_epochs=settings["epochs"], logger=False)
    trainer.fit(Model(settings), data, ckpt_path=reports.checkpoint)
"""

from collections.abc import Iterable
from typing import Any

from lightning.pytorch import Callback

from trainables.custom.function import FunctionTrial

CHECKPOINT = "last.ckpt"


class LightningTrialCallback(Callback):
    """Reports the logged metrics after each validation, at the number of optimizer steps.

    After a validation within an epoch, the callback reports the metrics of that validation only. At the end
    of an epoch it saves a checkpoint in the folder of the trial, then reports all metrics, even without a
    validation loop. If the sweep stops the trial early, a report raises an exception that ends the training.
    """

    def __init__(self, trial: FunctionTrial) -> None:
        """Create a callback for one trial.

        Args:
            trial: Second argument of the training function.
        """
        self._trial = trial
        self._has_validated = False
        self._earlier_names: set[str] = set()
        """Names of metrics that were logged before a validation."""
        self._validation_names: set[str] = set()
        self._last_step = -1
        """Step of the last report."""

    @property
    def checkpoint(self) -> str | None:
        """Path for `ckpt_path` of `Trainer.fit`; None if the trial is not resumed."""
        file = self._trial.folder / CHECKPOINT
        return str(file) if file.exists() else None

    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - as Lightning calls it
        """Store the names of the metrics that were logged before this validation."""
        self._earlier_names = set(trainer.callback_metrics)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - as Lightning calls it
        """Report a validation within an epoch; `on_train_epoch_end` reports one after the last batch."""
        self._validation_names |= set(trainer.callback_metrics) - self._earlier_names
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        self._has_validated = True
        if not trainer.fit_loop.epoch_loop.batch_progress.is_last_batch:
            self._report(trainer, self._validation_names)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ARG002 - as Lightning calls it
        """Save a checkpoint, then report the logged metrics."""
        trainer.save_checkpoint(self._trial.folder / CHECKPOINT)
        if self._has_validated or not trainer.enable_validation:
            self._report(trainer, trainer.callback_metrics)

    def _report(self, trainer: Any, names: Iterable[str]) -> None:
        self._has_validated = False
        if trainer.global_step > self._last_step:
            self._last_step = trainer.global_step
            metrics = {name: trainer.callback_metrics[name].item() for name in sorted(names)}
            self._trial.report(trainer.global_step, metrics)
