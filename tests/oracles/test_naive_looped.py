"""The looped Transformer and its baselines against their naive twin: values, gradients, stopping rules."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.oracles import naive_looped
from tests.oracles.test_naive_twins import beyond_initial, gradients, objective, stream
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
    "odd-heads": {"head_width": 3},
    "unshared-injected": {"recurrence": "unshared", "loops": 2, "layers": 2},
    "one-loop": {"loops": 1, "final_norm": "end"},
}
LENGTHS, STEPS, WIDTH, PADDED = (5, 1, 3, 4), (4, 1, 2, 4), 10, 7
SIZES = {"name": "looped", "width": WIDTH, "heads": 3, "head_width": 4, "feedforward_width": 7}


SHARPER = {"query.weight": 2.0, "key.weight": 2.0}
"""Attention is no mean."""


def inputs() -> tuple[Tensor, Tensor]:
    x = torch.randn(len(LENGTHS), PADDED, WIDTH, generator=stream(1), dtype=torch.float64)
    return x.requires_grad_(), torch.arange(PADDED) < torch.tensor(LENGTHS)[:, None]


def no_readout(states: Tensor) -> Tensor:
    raise AssertionError("nothing is read while stopping as told")


@pytest.mark.parametrize("early_exit", ["compact", "batch", "none"])
@pytest.mark.parametrize("arm", ARMS)
def test_looping_equals_its_naive_twin(arm: str, early_exit: str) -> None:
    config = model_config(SIZES | {"early_exit": early_exit, "max_loops": 6} | ARMS[arm])
    encoder = catalog.load("models", "looped").Encoder(config).double()
    initialise(encoder, seed=5)
    beyond_initial(encoder, SHARPER)
    raw = config.model_dump()
    loops = STEPS if raw["loops"] == "task" else [raw["loops"]] * len(LENGTHS)
    parameters = dict(encoder.named_parameters())

    x, mask = inputs()
    theirs = [
        naive_looped.trajectory(parameters, raw, row[:length], each)[-1]
        for row, length, each in zip(x, LENGTHS, loops, strict=True)
    ]
    pooled, nothing = torch.stack([states[-1] for states in theirs]), x.new_zeros(len(LENGTHS))
    value = objective(pooled, [torch.stack(states) for states in theirs], nothing)
    expected = gradients(encoder, x, value)

    ours = encoder(x, mask, Guide(torch.tensor(STEPS), no_readout))
    rows = [states[:length] for states, length in zip(ours.states, LENGTHS, strict=True)]
    for row, states in zip(rows, theirs, strict=True):
        torch.testing.assert_close(row, torch.stack(states))
    torch.testing.assert_close(ours.pooled, pooled)
    assert ours.depth.tolist() == list(loops)
    assert not ours.states[~mask].any()
    mine = gradients(encoder, x, objective(ours.pooled, rows, ours.ponder))
    assert mine.keys() == expected.keys()
    for name, grad in expected.items():
        torch.testing.assert_close(mine[name], grad, msg=lambda text, name=name: f"{name}: {text}")


ROWS = (5, 3, 5, 4, 3, 5, 5)


def asking(classes: int) -> tuple[TaskShape, Batch]:
    """Rows of three lengths, asked at their last two or three tokens."""
    shape = TaskShape("positions", 8, classes, pad_id=7, length_max=9, steps_max=6)
    lengths, columns = torch.tensor(ROWS)[:, None], torch.arange(6)
    mask = columns < lengths
    tokens = torch.randint(0, 7, mask.shape, generator=stream(2)).masked_fill(~mask, 7)
    labels = torch.randint(0, classes, mask.shape, generator=stream(3))
    labels = labels.masked_fill(~mask | (columns < lengths // 2), NOT_ASKED)
    return shape, Batch(tokens, mask, labels, lengths.squeeze(1))


def thinker(shape: TaskShape, **settings: Any) -> nn.Module:
    """One whose confidence goes up and down."""
    model = beyond_initial(build_model(SIZES | {"max_loops": 6} | settings, shape, seed=0).double(), SHARPER)
    for name, parameter in model.named_parameters():
        if name.endswith(("embedding.weight", "query.weight")):
            parameter.data.mul_(10.0 if "embedding" in name else 4.0)
    return model


def naive_stop(model: nn.Module, batch: Batch, together: Sequence[Sequence[int]]) -> tuple[list[int], Tensor]:
    """Steps that Eq. 2 chooses for each group of rows, and the loss of every row after them."""
    config, p = model.encoder.config.model_dump(), dict(model.named_parameters())
    own = {name.removeprefix("encoder."): value for name, value in p.items()}
    loops = config["loops"] if config["recurrence"] == "unshared" else config["max_loops"]
    steps, losses = {}, {}
    for group in together:
        runs = {}
        for row in group:
            x = F.embedding(batch.tokens[row, : ROWS[row]], p["embedding.weight"])
            runs[row] = naive_looped.trajectory(own, config, x, loops)
        places = {row: (batch.labels[row] != NOT_ASKED).nonzero().squeeze(1).tolist() for row in group}
        doubts = [[naive_looped.confidence_loss(p, z, places[row]) for z in runs[row]] for row in group]
        step = naive_looped.chosen_step(doubts)
        for row in group:
            answers = [
                -torch.log(naive_looped.probabilities(p, runs[row][step - 1][at])[batch.labels[row, at]])
                for at in places[row]
            ]
            steps[row], losses[row] = step, sum(answers) / len(answers)
    order = range(len(ROWS))
    return [steps[row] for row in order], torch.stack([losses[row] for row in order])


ALONE = [[row] for row in range(len(ROWS))]
OF_A_LENGTH = [[row for row, length in enumerate(ROWS) if length == each] for each in (3, 4, 5)]


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize(("stop", "together"), [("instance", ALONE), ("batch", OF_A_LENGTH)])
@pytest.mark.parametrize("arm", ["fop-loop-adaptive", "fop-loop-adaptive-wo", "ntp-loop", "fop"])
def test_the_most_confident_step_is_that_of_equation_2(
    arm: str, stop: str, together: Sequence[Sequence[int]], classes: int
) -> None:
    shape, batch = asking(classes)
    model = thinker(shape, stop=stop, **ARMS[arm])
    steps, losses = naive_stop(model, batch, together)
    expected = torch.autograd.grad(losses.sum(), list(model.parameters()), allow_unused=True)
    output = model(batch)
    assert output.encoded.depth.tolist() == steps
    torch.testing.assert_close(output.loss, losses)
    found = torch.autograd.grad(output.loss.sum(), list(model.parameters()), allow_unused=True)
    for mine, theirs in zip(found, expected, strict=True):
        if theirs is not None:
            torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("classes", [2, 4])
def test_rules_differ_and_so_do_the_steps_they_choose(classes: int) -> None:
    """Otherwise the tests above would prove little."""
    shape, batch = asking(classes)
    chosen = [thinker(shape, stop=stop)(batch).encoded.depth.tolist() for stop in ("instance", "batch")]
    assert chosen[0] != chosen[1]
    assert all(len(set(steps)) > 1 for steps in chosen)


def test_a_batch_of_one_is_an_instance() -> None:
    shape, batch = asking(4)
    by_batch, by_instance = (thinker(shape, stop=stop) for stop in ("batch", "instance"))
    together = by_instance(batch).encoded
    for row in range(len(ROWS)):
        one = slice(row, row + 1)
        part = Batch(batch.tokens[one], batch.mask[one], batch.labels[one], None)
        alone = by_batch(part).encoded
        assert alone.depth.item() == together.depth[row]
        torch.testing.assert_close(alone.states, together.states[one])
