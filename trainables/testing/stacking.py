"""What a model promises several of which take their steps as one: each is what it is alone."""

from typing import Final

from trainables.assembly import model_config, unstacked
from trainables.checkpoint import weights
from trainables.testing.arms import EXIT, Raw, having
from trainables.testing.cases import ModelCases, batch
from trainables.testing.compiling import DROPPED
from trainables.testing.contract import check, check_close
from trainables.training.config import train_config
from trainables.training.stacked_step import LearnerStack
from trainables.training.step import Learner, one_step

STEPS: Final = 2
LENGTHS: Final = ((5, 1, 9, 3), (2, 2, 7, 1), (6, 4, 4, 4))
"""Of the batches of each member: as many rows, and other widths."""
TRAIN: Final = {"steps": 9, "lr": 0.02, "clip": 0.5, "eps": 1e-3, "label_smoothing": 0.1}


class StackContract(ModelCases):
    """For every arm of a model that says `STACKED`."""

    def every_stacked(self) -> dict[str, Raw]:
        """Arms whose layers know of several models."""
        arms = self.every_arm()
        return {label: raw for label, raw in arms.items() if unstacked(model_config(raw)) is None}

    def test_together_they_are_what_they_are_alone(self, stacked: Raw) -> None:
        """Losses, costs, gradients' norms and weights after some steps, with dropout and ragged rows."""
        full = having(stacked, **DROPPED)
        # Layers that no unit needs any more have no gradient alone, which is not one of zero.
        every_layer = having(full, **{EXIT: "none"}) if EXIT in full else full
        apart, together = (
            [Learner(self.built(raw), train_config(TRAIN), seed=seed) for seed in range(len(LENGTHS))]
            for raw in (every_layer, full)
        )
        stack, batches = LearnerStack(together), [batch(lengths) for lengths in LENGTHS]
        for step in range(STEPS):
            found = stack.step(batches, step)
            for one, given, result in zip(apart, batches, found, strict=True):
                alone = one_step(one, given, step)
                check_close(result.row(), alone.row(), f"stacked, step {step} must be the same: {alone}")
        for one, other in zip(apart, together, strict=True):
            ours, theirs = weights(other.model), weights(one.model)
            check(ours.keys() == theirs.keys(), "stacked, weights must have the same names")
            for name, weight in ours.items():
                check_close(weight, theirs[name], f"stacked, weights must become the same: {name}")
