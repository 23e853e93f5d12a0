"""The looped Transformer: number of loops, saved work, refused settings, and learning."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from tests.support.specs.examples import examples
from trainables import costs, task_catalog
from trainables.assembly import build_model, misfit, model_config
from trainables.data.synthetic import synthetic_batch
from trainables.layers.dropout import set_dropout_context
from trainables.models.looped import Config
from trainables.training.config import train_config
from trainables.training.evaluate import evaluate
from trainables.training.step import Learner, one_step
from trainables.training.work import Work
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


def gradients(model: nn.Module, batch_: Batch, step: int) -> tuple[Any, dict[str, Tensor]]:
    set_dropout_context(model.train(), 3, step)
    output = model(batch_)
    output.loss.sum().backward()
    return output, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def test_defaults_equal_the_published_ones_except_for_heads() -> None:
    config = Config()
    assert (config.width, config.layers, config.heads, config.size_of_feedforward) == (256, 1, 8, 1024)
    assert (config.loops, config.recurrence, config.injection, config.stop) == (
        "task",
        "shared",
        True,
        "oracle",
    )
    assert (config.dropout, config.attention_dropout, config.causal) == (0.0, 0.0, True)
    assert Config(heads=64).size_of_head == 4


@examples(5)
@given(
    rows=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 9)), min_size=1, max_size=5),
    seed=st.integers(0, 99),
    more=st.sampled_from([{}, {"injection": False}, {"final_norm": "end"}]),
)
def test_early_exit_modes_agree(rows: list[tuple[int, int]], seed: int, more: dict[str, Any]) -> None:
    steps, lengths = map(list, zip(*rows, strict=True))
    given_batch, rates = batch(steps, lengths), {"dropout": 0.2, "attention_dropout": 0.1}
    expected, gradient = gradients(build(early_exit="none", **rates, **more), given_batch, seed)
    for mode, run in (("compact", steps), ("batch", [max(steps)] * len(steps))):
        output, found = gradients(build(early_exit=mode, **rates, **more), given_batch, seed)
        torch.testing.assert_close(output.loss, expected.loss)
        torch.testing.assert_close(output.encoded.states, expected.encoded.states)
        assert output.encoded.computed.tolist() == run
        assert found.keys() == gradient.keys()
        for name in gradient:
            torch.testing.assert_close(found[name], gradient[name])
    encoded = expected.encoded
    assert encoded.depth.tolist() == steps
    assert encoded.computed.tolist() == encoded.bound.tolist() == [6.0] * len(steps)


def test_compact_mode_skips_loops_of_finished_sequences() -> None:
    model = build(attention="math", early_exit="compact").eval()
    batch_ = batch([1, 6, 3, 3], [9] * 4)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(batch_)
    loops = model.encoder.config
    expected = sum(costs.flops(loops, SHAPE, 9, steps) for steps in (1, 6, 3, 3))
    assert counter.get_total_flops() == expected


@pytest.mark.parametrize("stop", ["oracle", "instance", "batch"])
def test_model_ignores_answers_and_padding(stop: str) -> None:
    """Other labels and other tokens in the padding do not change the states."""
    model, batch_ = build(stop=stop).eval(), batch([2, 5, 3], [9, 4, 9])
    expected = model(batch_).encoded
    swapped = torch.where(batch_.labels == NOT_ASKED, NOT_ASKED, (batch_.labels + 1) % 4)
    changed = Batch(batch_.tokens.masked_fill(~batch_.mask, 2), batch_.mask, swapped, batch_.steps)
    encoded = model(changed).encoded
    assert torch.equal(encoded.depth, expected.depth)
    torch.testing.assert_close(encoded.states, expected.states)


def test_state_is_independent_of_later_tokens() -> None:
    model, batch_ = build().eval(), batch([2, 5, 3], [9, 9, 9])
    before = model(batch_).encoded.states
    tokens = batch_.tokens.clone()
    tokens[:, 5:] = (tokens[:, 5:] + 1) % 7
    after = model(Batch(tokens, batch_.mask, batch_.labels, batch_.steps)).encoded.states
    torch.testing.assert_close(after[:, :5], before[:, :5])
    assert (after[:, 5:] != before[:, 5:]).all()


def test_one_layer_without_positions_ignores_the_order_of_earlier_tokens() -> None:
    model = build(layers=1, loops=1).eval()
    x = torch.randn(1, 6, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mask, permuted = torch.ones(1, 6, dtype=torch.bool), x[:, [3, 1, 4, 0, 2, 5]]
    torch.testing.assert_close(model.encoder(x, mask).pooled, model.encoder(permuted, mask).pooled)


def test_confidence_rules_apply_in_evaluation_and_run_all_loops() -> None:
    model, batch_ = build(stop="instance"), batch([2, 5, 3])
    set_dropout_context(model, 3, 0)
    assert model(batch_).encoded.depth.tolist() == [2, 5, 3]
    encoded = model.eval()(batch_).encoded
    assert encoded.computed.tolist() == encoded.bound.tolist() == [6.0] * 3
    assert costs.depth_range(model.encoder.config, 9) == (1, 6)
    output_of_two_loops = build(stop="instance", loops=2).eval()(batch_).encoded
    assert output_of_two_loops.computed.tolist() == [6.0] * 3
    unshared_output = build(stop="instance", loops=2, recurrence="unshared").eval()(batch_).encoded
    assert unshared_output.computed.tolist() == unshared_output.bound.tolist() == [2.0] * 3


def test_number_of_loops_stops_every_evaluation() -> None:
    task_loops, batch_ = build().eval(), batch([4, 4, 4], [9, 5, 7])
    stopped_model = build(stop=4)
    assert stopped_model.train()(batch_).encoded.depth.tolist() == [4] * 3
    other_steps = Batch(batch_.tokens, batch_.mask, batch_.labels, torch.tensor([1, 2, 6]))
    encoded = stopped_model.eval()(other_steps).encoded
    torch.testing.assert_close(encoded.states, task_loops(batch_).encoded.states)
    assert encoded.depth.tolist() == encoded.computed.tolist() == [4.0] * 3
    assert encoded.bound.tolist() == [4.0] * 3
    output_of_nine_loops = build(stop=9, loops=2).eval()(batch_).encoded
    assert output_of_nine_loops.depth.tolist() == [9.0] * 3
    unshared_output = build(stop=9, loops=2, recurrence="unshared").eval()(batch_).encoded
    all_loops = build(loops=2, recurrence="unshared").eval()(batch_).encoded
    torch.testing.assert_close(unshared_output.states, all_loops.states)
    assert unshared_output.depth.tolist() == [2.0] * 3


@pytest.mark.parametrize(
    "changes", [{}, {"stop": 4}, {"stop": "instance"}, {"loops": 3}, {"loops": 3, "stop": 5}]
)
def test_flops_of_an_evaluation_count_the_computed_loops(changes: dict[str, Any]) -> None:
    config, batch_ = model_config(SMALL | changes), batch([2, 5, 3], [9, 4, 7])
    learner = Learner(build(**changes), train_config({"steps": 1}), seed=0)
    work = Work(config, SHAPE, learner.config)
    flops = evaluate(learner, [batch_], work.samples)["flops"]
    loops = build(**changes).eval()(batch_).encoded.computed.tolist()
    expected = [costs.flops(config, SHAPE, *each) for each in zip((9, 4, 7), map(int, loops), strict=True)]
    assert flops == pytest.approx(sum(expected) / 3)


def test_most_confident_loop_has_the_least_uncertainty() -> None:
    batch_ = batch([2, 5, 3], [9, 9, 9])
    uncertainties = [build(stop=number).eval()(batch_).shares["uncertainty"] for number in range(1, 7)]
    output = build(stop="instance").eval()(batch_)
    least, place = torch.stack(uncertainties).min(0)
    torch.testing.assert_close(output.shares["uncertainty"], least)
    assert output.encoded.depth.tolist() == [float(each) + 1 for each in place]


def test_confidence_rule_propagates_nonfinite_losses() -> None:
    model = build(stop="instance").eval()
    model.embedding.weight.data.fill_(math.nan)
    assert model(batch([2, 5, 3])).loss.isnan().all()


@pytest.mark.parametrize(
    ("changes", "length", "expected"),
    [
        ({}, 4, (1, 4)),
        ({}, 9, (1, 6)),
        ({"early_exit": "batch"}, 4, (1, 6)),
        ({"early_exit": "none"}, 4, (6, 6)),
        ({"loops": 3}, 9, (3, 3)),
        ({"loops": 3, "stop": "batch"}, 9, (3, 6)),
        ({"loops": 3, "recurrence": "unshared", "stop": "batch"}, 9, (3, 3)),
    ],
)
def test_depth_range_counts_loops(changes: dict[str, Any], length: int, expected: tuple[int, int]) -> None:
    assert costs.depth_range(model_config(SMALL | changes), length) == expected


def test_memory_estimate_of_task_loops_assumes_the_most_loops() -> None:
    """T(n) is at most the length, here 9 tokens, and at most 6 loops."""
    task_loops_bytes, fixed_loops_bytes = (
        costs.peak_memory_bytes(model_config(SMALL | changes), SHAPE, 8, 9) for changes in ({}, {"loops": 6})
    )
    assert task_loops_bytes == fixed_loops_bytes
    shorter = costs.peak_memory_bytes(model_config(SMALL), SHAPE, 8, 3)
    assert shorter < costs.peak_memory_bytes(model_config(SMALL | {"early_exit": "none"}), SHAPE, 8, 3)


def test_published_models_have_the_expected_parameters() -> None:
    """The task is parity: width 256, 64 heads of 4, feed-forward 1,024; 56 words, three classes."""
    shape = task_catalog.shape(task_catalog.task_config({"name": "algorithms"}))
    width, inner = 256, 1024
    norm = 2 * width
    layer = 4 * width**2 + (width * inner + inner) + (inner * width + width) + 2 * norm
    rest = 56 * width + (width**2 + width) + (width * 3 + 3)
    expected = {"looped": layer + norm + rest, "fop": 20 * layer + norm + rest}
    assert expected == {"looped": 870_147, "fop": 15_856_131}
    looped = build_model({"name": "looped", "heads": 64}, shape, 0, "meta")
    fop = {"recurrence": "unshared", "loops": 20, "injection": False, "final_norm": "end"}
    deep = build_model({"name": "looped", "heads": 64} | fop, shape, 0, "meta")
    assert costs.parameters(looped) == expected["looped"]
    assert costs.parameters(deep) == expected["fop"]
    groups = costs.parameters_by_group(looped)
    assert groups["attention"] == 4 * width**2
    assert groups["norm"] == 3 * norm
    assert "other" not in groups


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"recurrence": "unshared"}, "recurrence: unshared .*loops='task'"),
        ({"loops": 0}, r"loops.*\n.*greater_than_equal"),
        ({"loops": "twenty"}, r"loops.*\n.*int_type"),
        ({"loops": True}, r"loops.*\n.*int_type"),
        ({"stop": "confidence"}, r"stop.*\n.*int_type"),
        ({"max_loops": 0}, r"max_loops.*\n.*greater_than_equal"),
        ({"heads": 5}, "width=12 and heads=5"),
        ({"pooling": "mean"}, r"pooling.*\n.*extra_forbidden"),
    ],
)
def test_impossible_settings_raise_an_error(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValidationError, match=text):
        model_config(SMALL | changes)


@pytest.mark.parametrize(
    ("changes", "shape", "text"),
    [
        (
            {},
            PLAIN,
            "must have a fixed number of loops for a task that gives no steps .* got loops='task'",
        ),
        (
            {"max_loops": 5},
            SHAPE,
            "must be allowed the 6 loops that some sample takes, got max_loops=5; raise",
        ),
        (
            {"loops": 2, "stop": "batch"},
            PLAIN,
            "must stop as in training .* got stop='batch' for the head 'classify'",
        ),
    ],
)
def test_unfitting_task_is_refused_before_training(
    changes: dict[str, Any], shape: TaskShape, text: str
) -> None:
    with pytest.raises(ValueError, match=f"model {text}"):
        build_model(SMALL | changes, shape, 0, "meta")
    assert misfit(model_config(SMALL | {"loops": 2}), shape) is None
    assert misfit(model_config(SMALL), SHAPE) is None


def test_incomplete_batch_error_names_the_missing_field() -> None:
    model, batch_ = build(), batch([2, 5, 3])
    without = Batch(batch_.tokens, batch_.mask, batch_.labels)
    with pytest.raises(ValueError, match="steps"):
        model(without)
    with pytest.raises(ValueError, match="2 to 7 and max_loops=6"):
        model(Batch(batch_.tokens, batch_.mask, batch_.labels, torch.tensor([2, 7, 3])))
    with pytest.raises(ValueError, match="max_loops, got 0 to 3"):
        model(Batch(batch_.tokens, batch_.mask, batch_.labels, torch.tensor([2, 0, 3])))
    x = torch.zeros(3, 9, 12, dtype=torch.float64)
    with pytest.raises(ValueError, match="stop: batch"):
        build(stop="batch").eval().encoder(x, batch_.mask)


def test_published_problems_fit_the_default_bound() -> None:
    for problem, length in (("parity", 40), ("addition", 30), ("multiplication", 32)):
        shape = task_catalog.shape(task_catalog.task_config({"name": "algorithms", "problem": problem}))
        assert shape.steps_max == length
        assert misfit(Config(), shape) is None


def test_unshared_model_fits_a_batch_of_parities() -> None:
    """`tests/e2e/test_systems_learn.py` tests shared weights."""
    stack = {"loops": 2, "recurrence": "unshared", "injection": False, "final_norm": "end"}
    task = task_catalog.task_config({"name": "algorithms", "length_max": 4, "interval": 0})
    batch_ = task_catalog.stream(task, 8, 0, 0)
    model = build_model({"name": "looped", "width": 32, "heads": 8, **stack}, task_catalog.shape(task), 0)
    train = train_config({"steps": 100, "lr": 0.005, "schedule": "cosine", "weight_decay": 0.0})
    learner = Learner(model, train, seed=0)
    first, *_, last = (one_step(learner, batch_, step) for step in range(100))
    assert float(first.loss) > math.log(2)
    assert int(last.hits) == int(last.counts)
