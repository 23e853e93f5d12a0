"""Test models that declare `GRAPHED`: their training steps can be captured once and replayed."""

from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

from trainables.assembly import model_config, ungraphed
from trainables.layers.constant_shapes import BatchDependentError
from trainables.layers.global_generator import draws_globally
from trainables.testing.arms import Raw, with_fields
from trainables.testing.cases import SEED, SHAPE, ModelCases, batch
from trainables.testing.contract import check, check_close
from trainables.testing.recorded import RecordingEngine
from trainables.training.config import train_config
from trainables.training.graphed import Engine, Filler, GraphedPasses
from trainables.training.step import Learner, compute_gradients
from trainables.types import Batch

LENGTHS: Final = ((5, 1, 9, 3, 7), (6, 6, 6, 6, 6), (3, 20, 11, 2, 2), (20, 20, 20, 1, 20))
"""Row lengths of batches that have equal shapes once filled."""
DROPOUT_RATES: Final = {"dropout": 0.2, "attention_dropout": 0.1}
SUMS: Final = ("loss", "ponder cost", "hits", "predictions")
StepValues = dict[str, Tensor]


class RunningEngine:
    """Engine without capture: a replay runs the pass again."""

    def warm_up(self, run: Callable[[], Tensor]) -> None:
        """Run a pass."""
        run()

    def capture(
        self,
        run: Callable[[], Tensor],
        state_tensors: Callable[[], list[Tensor]],  # noqa: ARG002 the pass may read any tensor
    ) -> tuple[Tensor, Callable[[], None]]:
        """Run a pass and return its result and a function that runs it again."""
        result = run()

        def replay() -> None:
            result.copy_(run())

        return result, replay


class GraphContract(ModelCases):
    """Tests each arm of a model that declares `GRAPHED`, on the CPU, with dropout."""

    def every_graphed(self) -> dict[str, Raw]:
        """Return the arms whose training steps can be captured."""
        arms = self.every_arm()
        return {label: raw for label, raw in arms.items() if ungraphed(model_config(raw), SHAPE) is None}

    def test_replayed_steps_equal_executed_steps(self, graphed: Raw) -> None:
        """Check that one capture serves other batches and steps with bit-identical sums and gradients.

        Inside a pass the host must not wait for the device, read the batch, or use tensors that were created
        outside of the pass.
        """
        replayed_learner, executed_learner = (
            self._make_passes(graphed, engine) for engine in (RecordingEngine(), RunningEngine())
        )
        for step, lengths in enumerate(LENGTHS):
            try:
                actual, expected = (
                    step_values(learner, batch(lengths), step)
                    for learner in (replayed_learner, executed_learner)
                )
            except BatchDependentError as error:
                raise AssertionError(f"a step must be captured once for all batches: {error}") from error
            check(actual.keys() == expected.keys(), "the same weights must have a gradient in every step")
            different_values = [
                name for name, value in actual.items() if not torch.equal(value, expected[name])
            ]
            check(
                not different_values,
                f"a replayed step on rows of {lengths} must do what the pass does when it is run, got "
                f"other values of {', '.join(different_values)}"
                ": the pass depends on host code that reads the batch",
            )

    def test_filler_rows_change_no_result(self, graphed: Raw) -> None:
        """Check that sums and gradients equal those of a step without filler rows, up to rounding.

        Models whose dropout draws from PyTorch's generator, by the shape of a batch, run in evaluation mode.
        """
        filled, unfilled = self._make_passes(graphed, RunningEngine()), self._make_learner(graphed)
        for learner in (filled, unfilled):
            learner.model.train(not draws_globally(learner.model))
        for step, lengths in enumerate(LENGTHS):
            actual, expected = (step_values(learner, batch(lengths), step) for learner in (filled, unfilled))
            requirement = f"with filler rows, a step on rows of {lengths} must be what it is without"
            check(actual.keys() == expected.keys(), f"{requirement}: weights with a gradient")
            for name, value in expected.items():
                check_close(actual[name], value, f"{requirement}: {name}")

    def _make_learner(self, raw: Raw) -> Learner:
        config = train_config({"steps": len(LENGTHS), "batch_size": len(LENGTHS[0]), "graph": True})
        return Learner(self.built(with_fields(raw, **DROPOUT_RATES)).train(), config, seed=SEED)

    def _make_passes(self, raw: Raw, engine: Engine) -> Learner:
        learner = self._make_learner(raw)
        filler = Filler.of(len(LENGTHS[0]), SHAPE.length_max, SHAPE.pad_id)
        learner.graphs = GraphedPasses(learner, filler, engine)
        return learner


def step_values(learner: Learner, batch: Batch, step: int) -> StepValues:
    """Return the sums of a step and the gradient of each weight, in one mapping by name."""
    sums = dict(zip(SUMS, compute_gradients(learner, batch, step), strict=True))
    parameters = learner.model.named_parameters()
    return sums | {
        name: parameter.grad.clone() for name, parameter in parameters if parameter.grad is not None
    }
