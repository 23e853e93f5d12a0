"""The head for pairs equals encoding both sentences separately."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from trainables.assembly import build_model
from trainables.heads.pair import sentences
from trainables.types import Batch, TaskShape

SEPARATOR, PAD = 6, 7
SHAPE = TaskShape("pair", 8, num_classes=3, pad_id=PAD, length_max=30, separator_id=SEPARATOR)
MODELS = [
    {"name": "transformer", "width": 8, "heads": 2, "layers": 2, "dropout": 0.0, "attention_dropout": 0.0},
    {
        "name": "universal",
        "width": 8,
        "heads": 2,
        "max_layers": 4,
        "dropout": 0.0,
        "attention_dropout": 0.0,
        "halt": {"threshold": 0.6},
    },
]
words = st.lists(st.integers(0, 5), min_size=1, max_size=6)
pairs = st.lists(st.tuples(words, words), min_size=1, max_size=5)


def batch(examples: list[tuple[list[int], list[int]]]) -> Batch:
    rows = [[*first, SEPARATOR, *second] for first, second in examples]
    width = max(map(len, rows)) + 1
    tokens = torch.tensor([row + [PAD] * (width - len(row)) for row in rows])
    return Batch(tokens, tokens != PAD, torch.arange(len(rows)) % 3)


@given(pairs)
def test_pair_is_split_at_the_separator(examples: list[tuple[list[int], list[int]]]) -> None:
    given_batch = batch(examples)
    tokens, mask = sentences(given_batch.tokens, given_batch.mask, SEPARATOR)
    token_rows = [row[row_mask].tolist() for row, row_mask in zip(tokens, mask, strict=True)]
    assert token_rows == [first for first, _ in examples] + [second for _, second in examples]
    lengths = mask.sum(1)
    assert torch.equal(mask, torch.arange(mask.shape[1]) < lengths[:, None]), (
        "sentences must be padded on the right"
    )


@pytest.mark.parametrize("raw", MODELS, ids=lambda raw: raw["name"])
def test_pair_output_equals_separately_encoded_sentences(raw: dict[str, object]) -> None:
    examples = [([0, 1, 2], [3]), ([5], [4, 4, 0, 1, 2]), ([2, 2], [2, 2])]
    model, given_batch = build_model(raw, SHAPE, seed=1).double().eval(), batch(examples)
    output = model(given_batch)
    for row, example in enumerate(examples):
        single_encodings = []
        for sentence in example:
            x = F.embedding(torch.tensor([sentence]), model.embedding())
            single_encodings.append(model.encoder(x, torch.ones(1, len(sentence), dtype=torch.bool)))
        u, v = (encoded.pooled[0] for encoded in single_encodings)
        logits = model.readout(torch.cat((u, v, u * v, (u - v).abs()))[None])[0]
        label = int(given_batch.labels[row])
        torch.testing.assert_close(output.loss[row], logits.logsumexp(0) - logits[label])
        assert output.hits[row] == (logits.argmax() == label)
        for name in ("depth", "ponder", "computed", "bound"):
            values = torch.stack([getattr(encoded, name)[0] for encoded in single_encodings])
            torch.testing.assert_close(getattr(output.encoded, name)[row], values.mean())
