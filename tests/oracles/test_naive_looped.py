"""The looped Transformer and its baselines equal a naive implementation; so do gradients and stopping."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.oracles import naive_looped
from tests.oracles.naive_universal import NaiveOutput
from tests.oracles.test_naive_encoders import (
    EXITS,
    assert_equal_outputs,
    gradients,
    naive_objective,
    perturb_parameters,
    stream,
)
from trainables import catalog
from trainables.assembly import build_model, initialise, model_config
from trainables.types import NOT_ASKED, Batch, Guide, TaskShape

FOP = {"recurrence": "unshared", "loops": 3, "injection": False, "final_norm": "end"}
ARMS: dict[str, dict[str, Any]] = {
    "fop-loop-adaptive": {},
    "fop-loop-adaptive-wo": {"injection": False},
    "fop-loop-fixed": {"loops": 3},
    "fop": FOP,
    "ntp-loop": {"loops": 4},
    "ntp-loop-wo": {"loops": 4, "injection": False},
    "norm-at-the-end": {"final_norm": "end", "layers": 2},
    "two-layers": {"layers": 2},
    "unshared-injected": {"recurrence": "unshared", "loops": 2, "layers": 2},
    "one-loop": {"loops": 1, "final_norm": "end"},
}
LENGTHS, STEPS, WIDTH, PADDED = (5, 1, 3, 4), (4, 1, 2, 4), 10, 7
SIZES = {"name": "looped", "width": WIDTH, "heads": 3, "head_width": 4, "feedforward_width": 7}


SHARPER = {"query.weight": 2.0, "key.weight": 2.0}
"""Factors that make attention differ from a mean."""


def no_readout(states: Tensor) -> Tensor:
    raise AssertionError("a given number of loops must not call the readout")


@pytest.mark.parametrize("early_exit", EXITS)
@pytest.mark.parametrize("arm", ARMS)
def test_looped_model_equals_the_naive_implementation(arm: str, early_exit: str) -> None:
    config = model_config(SIZES | {"early_exit": early_exit, "max_loops": 6} | ARMS[arm])
    encoder = catalog.load("models", "looped").Encoder(config).double()
    initialise(encoder, seed=5)
    perturb_parameters(encoder, SHARPER)
    raw = config.model_dump()
    loops = STEPS if raw["loops"] == "task" else [raw["loops"]] * len(LENGTHS)
    parameters = dict(encoder.named_parameters())
    x = torch.randn(len(LENGTHS), PADDED, WIDTH, generator=stream(1), dtype=torch.float64).requires_grad_()
    mask = torch.arange(PADDED) < torch.tensor(LENGTHS)[:, None]
    naive_outputs = []
    for row, length, row_loops in zip(x, LENGTHS, loops, strict=True):
        states = naive_looped.trajectory(parameters, raw, row[:length], row_loops)[-1]
        naive_outputs.append(NaiveOutput(states, states[-1], row_loops, x.new_zeros(())))
    expected = gradients(encoder, {"x": x}, naive_objective(naive_outputs))
    output = encoder(x, mask, Guide(torch.tensor(STEPS), no_readout))
    assert not output.states[~mask].any()
    assert_equal_outputs(encoder, {"x": x}, output, naive_outputs, expected)


ROWS = (5, 3, 5, 4, 3, 5, 5)


def positions_task(classes: int) -> tuple[TaskShape, Batch]:
    """Return a batch of rows of three lengths, with labels at the last two or three tokens."""
    shape = TaskShape("positions", 8, classes, pad_id=7, length_max=9, steps_max=6)
    lengths, columns = torch.tensor(ROWS)[:, None], torch.arange(6)
    mask = columns < lengths
    tokens = torch.randint(0, 7, mask.shape, generator=stream(2)).masked_fill(~mask, 7)
    labels = torch.randint(0, classes, mask.shape, generator=stream(3))
    labels = labels.masked_fill(~mask | (columns < lengths // 2), NOT_ASKED)
    return shape, Batch(tokens, mask, labels, lengths.squeeze(1))


def build_confident_model(shape: TaskShape, **settings: Any) -> nn.Module:
    """Build a model whose confidence rises and falls over the loops."""
    model = perturb_parameters(
        build_model(SIZES | {"max_loops": 6} | settings, shape, seed=0).double(), SHARPER
    )
    for name, parameter in model.named_parameters():
        if name.endswith(("embedding.weight", "query.weight")):
            parameter.data.mul_(10.0 if "embedding" in name else 4.0)
    return model


def naive_stop(model: nn.Module, batch: Batch, groups: Sequence[Sequence[int]]) -> tuple[list[int], Tensor]:
    """Return the steps that Eq. 2 chooses for each group of rows, and the loss of every row at its step."""
    config, p = model.encoder.config.model_dump(), dict(model.named_parameters())
    encoder_parameters = {name.removeprefix("encoder."): value for name, value in p.items()}
    loops = config["loops"] if config["recurrence"] == "unshared" else config["max_loops"]
    steps, losses = {}, {}
    for group in groups:
        runs = {}
        for row in group:
            x = F.embedding(batch.tokens[row, : ROWS[row]], p["embedding.weight"])
            runs[row] = naive_looped.trajectory(encoder_parameters, config, x, loops)
        positions = {row: (batch.labels[row] != NOT_ASKED).nonzero().squeeze(1).tolist() for row in group}
        losses_by_step = [
            [naive_looped.confidence_loss(p, z, positions[row]) for z in runs[row]] for row in group
        ]
        step = naive_looped.most_confident_step(losses_by_step)
        for row in group:
            answers = [
                -torch.log(
                    naive_looped.probabilities(p, runs[row][step - 1][position])[batch.labels[row, position]]
                )
                for position in positions[row]
            ]
            steps[row], losses[row] = step, sum(answers) / len(answers)
    order = range(len(ROWS))
    return [steps[row] for row in order], torch.stack([losses[row] for row in order])


SINGLE_ROWS = [[row] for row in range(len(ROWS))]
ROWS_BY_LENGTH = [
    [row for row, length in enumerate(ROWS) if length == row_length] for row_length in (3, 4, 5)
]


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize(("stop", "groups"), [("instance", SINGLE_ROWS), ("batch", ROWS_BY_LENGTH)])
@pytest.mark.parametrize("arm", ["fop-loop-adaptive", "fop"])
def test_most_confident_step_equals_equation_2(
    arm: str, stop: str, groups: Sequence[Sequence[int]], classes: int
) -> None:
    shape, batch = positions_task(classes)
    model = build_confident_model(shape, stop=stop, **ARMS[arm])
    steps, losses = naive_stop(model, batch, groups)
    expected = torch.autograd.grad(losses.sum(), list(model.parameters()), allow_unused=True)
    output = model(batch)
    assert len(set(steps)) > 1 or arm != "fop-loop-adaptive", "the test needs different steps"
    assert output.encoded.depth.tolist() == steps
    torch.testing.assert_close(output.loss, losses)
    grads = torch.autograd.grad(output.loss.sum(), list(model.parameters()), allow_unused=True)
    for grad, naive_grad in zip(grads, expected, strict=True):
        if naive_grad is not None:
            torch.testing.assert_close(grad, naive_grad)
