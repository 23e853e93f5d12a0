"""Early exit changes only the amount of work, for all shapes, thresholds and arms."""

from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.specs.examples import examples
from trainables.assembly import build_model
from trainables.testing.cases import SHAPE, batch, check_same, enliven, run_training_pass

IMMEDIATE_THRESHOLD = 1e-6
"""A threshold that the first halting probability reaches."""
lengths = st.lists(st.integers(1, 8), min_size=1, max_size=5)
thresholds = st.sampled_from((IMMEDIATE_THRESHOLD, 0.3, 0.6, 0.9, 0.999, 1.0))


@st.composite
def universal(draw: st.DrawFn) -> dict[str, Any]:
    """Return settings of any arm of the universal family, without or with chunks."""
    halt = {
        "unit": draw(st.sampled_from(("sequence", "token"))),
        "transition": draw(st.booleans()),
        "threshold": draw(thresholds),
        "origin": draw(st.sampled_from((0, 1))),
        "rule": draw(st.sampled_from(("undo", "prefix"))),
    }
    raw = {
        "name": draw(st.sampled_from(("universal", "gutlb"))),
        "width": 4,
        "heads": draw(st.sampled_from((1, 2))),
        "max_layers": draw(st.integers(1, 4)),
        "gate": draw(st.booleans()),
        "kv": draw(st.sampled_from(("auto", "states", "mixture"))),
        "causal": draw(st.booleans()),
        "halt": halt,
    }
    if raw["name"] == "gutlb":
        raw |= {"chunk": {"size": draw(st.integers(1, 9))}, "memory": {"slots": draw(st.integers(1, 3))}}
    elif raw["causal"]:
        raw |= {"pooling": draw(st.sampled_from(("mean", "end")))}
    return raw


@examples(12)
@given(raw=universal(), sizes=lengths, seed=st.integers(0, 99), liveliness=st.sampled_from((1.0, 20.0)))
def test_early_exit_changes_no_result(
    raw: dict[str, Any], sizes: list[int], seed: int, liveliness: float
) -> None:
    results = {}
    for mode in ("none", "batch", "compact"):
        model = build_model(raw | {"early_exit": mode}, SHAPE, seed).double()
        for name, parameter in model.named_parameters():
            if name.endswith("halt.outer.weight"):
                parameter.data.mul_(liveliness)
        enliven(model, 1.0)
        results[mode] = run_training_pass(model, batch(sizes), step=seed)
    output, gradients = results["none"]
    for mode in ("batch", "compact"):
        actual, other_gradients = results[mode]
        torch.testing.assert_close(actual.loss, output.loss)
        check_same(actual.encoded, output.encoded, mode, without=("computed",))
        assert (actual.encoded.computed <= output.encoded.computed + 1e-9).all()
        # A parameter that no computation uses has no gradient instead of a zero gradient.
        for name, gradient in gradients.items():
            torch.testing.assert_close(other_gradients.get(name, torch.zeros_like(gradient)), gradient)
        assert other_gradients.keys() <= gradients.keys()


@given(sizes=lengths, token=st.booleans(), causal=st.booleans())
@examples(10)
def test_threshold_reached_at_once_undoes_the_first_step(sizes: list[int], token: bool, causal: bool) -> None:
    """No layer counts, so the outputs are the embeddings, in rows of every length."""
    halt = {"unit": "token" if token else "sequence", "threshold": IMMEDIATE_THRESHOLD}
    raw = {"name": "universal", "width": 4, "heads": 1, "max_layers": 3, "causal": causal, "halt": halt}
    model = build_model(raw, SHAPE, 1).double().eval()
    given_batch = batch(sizes)
    encoded = model(given_batch).encoded
    assert encoded.depth.tolist() == [0.0] * len(sizes)
    assert encoded.computed.tolist() == [1.0] * len(sizes)
    assert encoded.ponder.tolist() == [0.0] * len(sizes)
    embeddings = torch.nn.functional.embedding(given_batch.tokens, model.embedding())
    first = 0 if causal else 1
    for row, size in enumerate(sizes):
        torch.testing.assert_close(encoded.states[row, first : first + size], embeddings[row, :size])
