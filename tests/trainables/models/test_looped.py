"""The looped Transformer: number of loops, its costs, and refused settings."""

from typing import Any

import pytest
import torch
from torch import nn

from trainables import costs, task_catalog
from trainables.assembly import build_model, model_config
from trainables.data.synthetic import synthetic_batch
from trainables.layers.dropout import set_dropout_context
from trainables.models.looped import Config
from trainables.training.config import train_config
from trainables.training.evaluate import evaluate
from trainables.training.step import Learner
from trainables.training.work import FlopsCalculator
from trainables.types import NOT_ASKED, Batch, TaskShape

SHAPE = TaskShape("positions", 8, num_classes=4, pad_id=7, length_max=9, steps_max=6)
PLAIN = TaskShape("classify", 8, num_classes=4, pad_id=7, length_max=9)
SMALL = {"name": "looped", "width": 12, "heads": 3, "layers": 2, "max_loops": 6}


def batch(steps: list[int], lengths: list[int] | None = None) -> Batch:
    rows = len(steps)
    batch_ = synthetic_batch(SHAPE, rows, 9, seed=rows)
    mask = batch_.mask if lengths is None else torch.arange(9) < torch.tensor(lengths)[:, None]
    tokens, labels = batch_.tokens % 7, batch_.labels.clamp(min=0)
    return Batch(
        tokens.masked_fill(~mask, 7), mask, labels.masked_fill(~mask, NOT_ASKED), torch.tensor(steps)
    )


def build(shape: TaskShape = SHAPE, **changes: Any) -> nn.Module:
    return build_model(SMALL | changes, shape, seed=3).double()


def test_defaults_equal_the_published_ones_except_for_heads() -> None:
    config = Config()
    assert (config.width, config.layers, config.heads, config.size_of_feedforward) == (256, 1, 8, 1024)
    assert (config.loops, config.recurrence) == ("task", "shared")
    assert (config.injection, config.stop) == (True, "oracle")
    assert (config.dropout, config.attention_dropout, config.causal) == (0.0, 0.0, True)
    assert Config(heads=64).size_of_head == 4


def test_confidence_rules_apply_in_evaluation_and_run_all_loops() -> None:
    model, batch_ = build(stop="instance"), batch([2, 5, 3])
    set_dropout_context(model, 3, 0)
    assert model(batch_).encoded.depth.tolist() == [2, 5, 3]
    encoded = model.eval()(batch_).encoded
    assert encoded.computed.tolist() == encoded.bound.tolist() == [6.0] * 3
    assert costs.depth_range(model.encoder.config, 9) == (1, 6)


def test_number_of_loops_stops_every_evaluation() -> None:
    task_loops, batch_ = build().eval(), batch([4, 4, 4], [9, 5, 7])
    stopped_model = build(stop=4)
    assert stopped_model.train()(batch_).encoded.depth.tolist() == [4] * 3
    other_steps = Batch(batch_.tokens, batch_.mask, batch_.labels, torch.tensor([1, 2, 6]))
    encoded = stopped_model.eval()(other_steps).encoded
    torch.testing.assert_close(encoded.states, task_loops(batch_).encoded.states)
    assert encoded.depth.tolist() == encoded.computed.tolist() == [4.0] * 3
    assert build(stop=9, loops=2).eval()(batch_).encoded.depth.tolist() == [9.0] * 3


@pytest.mark.parametrize("changes", [{}, {"stop": "instance"}, {"loops": 3, "stop": 5}])
def test_flops_of_an_evaluation_count_the_computed_loops(changes: dict[str, Any]) -> None:
    config, batch_ = model_config(SMALL | changes), batch([2, 5, 3], [9, 4, 7])
    learner = Learner(build(**changes), train_config({"steps": 1}), seed=0)
    work = FlopsCalculator(config, SHAPE, learner.config)
    flops = evaluate(learner, [batch_], work.sample_flops)["flops"]
    loops = build(**changes).eval()(batch_).encoded.computed.tolist()
    expected = [
        costs.flops(config, SHAPE, *length_and_loops)
        for length_and_loops in zip((9, 4, 7), map(int, loops), strict=True)
    ]
    assert flops == pytest.approx(sum(expected) / 3)


@pytest.mark.parametrize(
    ("changes", "length", "expected"),
    [
        ({}, 4, (1, 4)),
        ({"early_exit": "batch"}, 4, (1, 6)),
        ({"loops": 3}, 9, (3, 3)),
        ({"loops": 3, "stop": "batch"}, 9, (3, 6)),
    ],
)
def test_depth_range_counts_loops(changes: dict[str, Any], length: int, expected: tuple[int, int]) -> None:
    assert costs.depth_range(model_config(SMALL | changes), length) == expected


def test_incomplete_batch_error_names_the_missing_field() -> None:
    model, batch_ = build(), batch([2, 5, 3])
    for steps, fault in ((None, "loops: task"), (torch.tensor([2, 7, 3]), "2 to 7 and max_loops=6")):
        with pytest.raises(ValueError, match=fault):
            model(Batch(batch_.tokens, batch_.mask, batch_.labels, steps))


def test_published_models_have_the_expected_parameters() -> None:
    """The task is parity: width 256, 64 heads of 4, feed-forward 1,024; 56 words, three classes."""
    shape = task_catalog.shape(task_catalog.task_config({"name": "algorithms"}))
    fop = {"recurrence": "unshared", "loops": 20, "injection": False, "final_norm": "end"}
    for changes, expected in (({}, 870_147), (fop, 15_856_131)):
        model = build_model({"name": "looped", "heads": 64} | changes, shape, 0, "meta")
        assert costs.parameters(model) == expected


@pytest.mark.parametrize(
    ("changes", "shape", "text"),
    [
        ({}, PLAIN, "loops='task'"),
        ({"max_loops": 5}, SHAPE, "max_loops=5"),
        ({"loops": 2, "stop": "batch"}, PLAIN, "stop='batch' .*'classify'"),
    ],
)
def test_unfitting_task_is_refused_before_training(
    changes: dict[str, Any], shape: TaskShape, text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        build_model(SMALL | changes, shape, 0, "meta")
