"""A Hugging Face `TrainerCallback` that reports a trial's metrics and returns its checkpoint for resuming.

def train(settings, trial):
    reports = TransformersTrialCallback(trial)
    arguments = TrainingArguments(output_dir=trial.folder, eval_strategy="epoch", save_strategy="epoch", ...)
    trainer = Trainer(model, arguments, train_dataset=..., eval_dataset=..., callbacks=[reports])
    trainer.train(resume_from_checkpoint=reports.checkpoint)
"""

from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_utils import get_last_checkpoint

from trainables.custom.function import FunctionTrial

PREFIXES = ("eval_", "test_", "train_")


class TransformersTrialCallback(TrainerCallback):
    """Reports each evaluation of a training, at the number of optimizer steps, once its checkpoint is saved.

    `eval_loss` is reported as `eval/loss`, as in the other integrations of Transformers. Set `output_dir` to
    the folder of the trial; otherwise the trial cannot be resumed. If the sweep stops the trial early, a
    report raises an exception that ends the training.
    """

    def __init__(self, trial: FunctionTrial) -> None:
        """Create a callback for one trial.

        Args:
            trial: Second argument of the training function.
        """
        self._trial = trial
        self._is_training = False
        self._pending_metrics: dict[str, float] = {}
        """Metrics of the evaluation whose checkpoint is not saved yet."""

    @property
    def checkpoint(self) -> str | None:
        """Path for `resume_from_checkpoint` of `Trainer.train`; None if the trial is not resumed."""
        folder: str | None = get_last_checkpoint(str(self._trial.folder))
        return folder

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Enable reports, since training has begun."""
        self._is_training = True

    def on_evaluate(
        self,
        args: Any,  # noqa: ARG002
        state: Any,
        control: Any,
        metrics: Mapping[str, Any],
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        """Report an evaluation, or store it until its checkpoint is saved."""
        if not self._is_training:
            return
        self._pending_metrics |= {
            _split_prefix(name): value for name, value in metrics.items() if isinstance(value, float | int)
        }
        if not control.should_save:
            self._report(state)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Report the evaluation of the saved checkpoint."""
        self._report(state)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Report the last evaluation. Evaluations after training are not reported."""
        self._report(state)
        self._is_training = False

    def _report(self, state: Any) -> None:
        if metrics := self._pending_metrics:
            self._pending_metrics = {}
            self._trial.report(state.global_step, metrics)


def _split_prefix(name: str) -> str:
    """Return the metric's name with a slash after the split: `eval/loss` for `eval_loss`."""
    for prefix in PREFIXES:
        if name.startswith(prefix):
            return f"{prefix[:-1]}/{name.removeprefix(prefix)}"
    return f"train/{name}"
