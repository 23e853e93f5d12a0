import numpy as np
import pyarrow as pa
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainables.data.split import Split, content_hash
from trainables.types import NOT_ASKED

PAD = 99
Row = tuple[list[int], int]
rows = st.lists(
    st.tuples(st.lists(st.integers(0, 98), min_size=1, max_size=9), st.integers(0, 9)),
    min_size=1,
    max_size=20,
)


def table(examples: list[Row], kind: pa.DataType | None = None) -> pa.Table:
    kind = kind or pa.large_list(pa.uint8())
    tokens = pa.array([tokens for tokens, _ in examples], type=kind)
    return pa.table({"tokens": tokens, "label": pa.array([label for _, label in examples], type=pa.int16())})


@given(rows, st.data())
def test_batch_equals_padding_by_hand(examples: list[Row], data: st.DataObject) -> None:
    indices = data.draw(st.lists(st.integers(0, len(examples) - 1), min_size=1, max_size=10))
    batch = Split(table(examples), PAD, "").batch(np.asarray(indices))
    longest = max(len(examples[index][0]) for index in indices)
    assert batch.tokens.dtype == batch.labels.dtype == torch.int64
    assert batch.tokens.tolist() == [
        examples[index][0] + [PAD] * (longest - len(examples[index][0])) for index in indices
    ]
    assert torch.equal(batch.mask, batch.tokens != PAD)
    assert batch.labels.tolist() == [examples[index][1] for index in indices]


@given(rows)
def test_floor_is_the_accuracy_of_the_most_frequent_label(examples: list[Row]) -> None:
    split = Split(table(examples), PAD, "")
    labels = [label for _, label in examples]
    assert split.majority_rate == max(np.mean([label == guess for label in labels]) for guess in range(10))
    assert split.label_histogram == {label: labels.count(label) for label in sorted(set(labels))}
    assert split.lengths.tolist() == [len(tokens) for tokens, _ in examples]
    assert len(split) == len(examples)


@given(rows, rows)
def test_hash_is_equal_for_equal_examples_only(first: list[Row], second: list[Row]) -> None:
    assert (content_hash(table(first)) == content_hash(table(second))) == (first == second)


@given(rows, rows)
def test_repeated_inputs_are_counted_independent_of_labels_and_type(
    rows_: list[Row], other: list[Row]
) -> None:
    first_split = Split(table(rows_), PAD, "")
    second_split = Split(table([(tokens, 0) for tokens, _ in other], pa.large_list(pa.int32())), PAD, "")
    assert first_split.num_repeated_in(second_split) == sum(
        any(tokens == each for each, _ in other) for tokens, _ in rows_
    )
    assert first_split.num_repeated_in(first_split) == len(rows_)


TargetRow = list[tuple[int, int]]
target_rows = st.lists(
    st.lists(st.tuples(st.integers(0, 98), st.integers(-1, 9)), min_size=1, max_size=9),
    min_size=1,
    max_size=20,
)


def target_table(examples: list[TargetRow], steps: list[int] | None = None) -> pa.Table:
    """Return a table of examples with (token, target) pairs."""
    columns = {
        "tokens": pa.array([[t for t, _ in row] for row in examples], type=pa.large_list(pa.uint8())),
        "targets": pa.array([[a for _, a in row] for row in examples], type=pa.large_list(pa.int8())),
    }
    return pa.table(columns if steps is None else columns | {"steps": pa.array(steps, type=pa.int32())})


@given(target_rows, st.data())
def test_targets_are_padded_like_their_tokens(examples: list[TargetRow], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(examples) - 1))
    table = target_table(examples, steps=list(range(len(examples))))[first:]
    indices = data.draw(st.lists(st.integers(0, len(examples) - first - 1), min_size=1, max_size=10))
    batch = Split(table, PAD, "").batch(np.asarray(indices))
    for row, index in enumerate(indices):
        expected = examples[first + index]
        missing = batch.tokens.shape[1] - len(expected)
        assert batch.tokens[row].tolist() == [token for token, _ in expected] + [PAD] * missing
        assert batch.labels[row].tolist() == [target for _, target in expected] + [NOT_ASKED] * missing
    assert batch.steps.tolist() == [first + index for index in indices]


def test_floor_of_targets_counts_labelled_positions() -> None:
    split = Split(target_table([[(1, -1), (2, 3), (4, 0)], [(5, 3)]]), PAD, "")
    assert len(split) == 2
    assert split.label_histogram == {0: 1, 3: 2}
    assert split.majority_rate == 2 / 3


AnswerRow = tuple[list[int], list[int]]
answer_rows = st.lists(
    st.tuples(
        st.lists(st.integers(0, 98), min_size=1, max_size=5), st.lists(st.integers(0, 70_000), max_size=4)
    ),
    min_size=1,
    max_size=20,
)
END = 70_001


def answer_table(examples: list[AnswerRow]) -> pa.Table:
    """Return a table of examples with (tokens, answer)."""
    columns = {
        "tokens": pa.array([tokens for tokens, _ in examples], type=pa.large_list(pa.uint8())),
        "answer": pa.array([answer for _, answer in examples], type=pa.large_list(pa.uint32())),
    }
    return pa.table(columns)


@given(answer_rows, st.data())
def test_answers_have_an_end_and_padding(examples: list[AnswerRow], data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(examples) - 1))
    split = Split(answer_table(examples)[first:], PAD, "", END)
    indices = data.draw(st.lists(st.integers(0, len(examples) - first - 1), min_size=1, max_size=10))
    batch = split.batch(np.asarray(indices))
    chosen = [examples[first + index] for index in indices]
    longest = max(len(answer) for _, answer in chosen)
    assert batch.labels.dtype == torch.int64
    assert batch.labels.tolist() == [
        [*answer, END] + [NOT_ASKED] * (longest - len(answer)) for _, answer in chosen
    ]
    assert batch.mask.sum(1).tolist() == [len(tokens) for tokens, _ in chosen]
    rows = examples[first:]
    assert split.sizes.tolist() == [max(len(tokens), len(answer) + 1) for tokens, answer in rows]
    answers = [answer for _, answer in rows]
    assert split.majority_rate == max(answers.count(answer) for answer in answers) / len(answers)


def test_hash_depends_on_kind_steps_and_ends_of_answers_and_not_on_the_layout() -> None:
    rows: list[Row] = [([7], 3), ([1, 2], 0), ([3], 1)]
    assert content_hash(table(rows, pa.list_(pa.uint8()))) == content_hash(table(rows))
    assert content_hash(table(rows)[1:]) == content_hash(table(rows[1:]))
    hashes = [
        content_hash(target_table([[(1, 0)]])),
        content_hash(target_table([[(1, 0)]], steps=[1])),
        content_hash(target_table([[(1, 0)]], steps=[2])),
        content_hash(table([([1], 0)])),
        content_hash(answer_table([([1], [2]), ([1], [])])),
        content_hash(answer_table([([1], []), ([1], [2])])),
    ]
    assert len(set(hashes)) == 6
