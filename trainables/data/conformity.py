"""Check that examples agree with the declarations of their task, built-in or not."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import torch

from trainables.task_protocol import SplitInfo
from trainables.types import NOT_ASKED, Batch, TaskShape

COLUMNS = {"classify": "label", "pair": "label", "positions": "targets", "sequence": "answer"}
"""Column that contains the targets, by head."""


def check_table(table: pa.Table, shape: TaskShape, info: SplitInfo) -> None:
    """Raise ValueError with the first property of a split that contradicts `shape` or `info`."""
    for fault in _faults(table, shape, info):
        raise ValueError(f"the examples of {info.name} must match the declaration of the task: {fault}")


def check_batch(batch: object, shape: TaskShape, info: SplitInfo) -> None:
    """Raise ValueError with the first property of a streamed batch that contradicts `shape` or `info`."""
    for fault in _batch_faults(batch, shape, info):
        raise ValueError(f"the examples of {info.name} must match the declaration of the task: {fault}")


def _faults(table: pa.Table, shape: TaskShape, info: SplitInfo) -> Iterator[str]:
    target_column = COLUMNS[shape.head]
    type_checks = {
        "tokens": _is_list,
        target_column: pa.types.is_integer if target_column == "label" else _is_list,
    }
    if "steps" in table.column_names:
        type_checks["steps"] = pa.types.is_integer
    for name, has_type in type_checks.items():
        if name not in table.column_names:
            yield f"a task of the head {shape.head!r} has the column {name}, got {table.column_names}"
            return
        column_type = table.schema.field(name).type
        if not has_type(column_type) or (
            _is_list(column_type) and not pa.types.is_integer(column_type.value_type)
        ):
            expected = "a whole number" if name in ("label", "steps") else "a list of whole numbers"
            yield f"{name} is {expected} an example, got {column_type}"
            return
        if table[name].null_count or _flat(table, name).null_count:
            yield f"{name} has no nulls, got some"
            return
    tokens, lengths = _numbers(table, "tokens"), _lengths(table, "tokens")
    yield from _input_faults(tokens, lengths, shape, info)
    if info.examples not in (None, len(table)):
        yield f"it has {info.examples} examples, got {len(table)}"
    separators = np.add.reduceat(tokens == shape.separator_id, _row_starts(lengths)) if len(table) else ()
    if shape.separator_id is not None and not np.all(np.asarray(separators) == 1):
        yield f"every pair has one separator, {shape.separator_id}, got another number"
    yield from _target_faults(table, target_column, lengths, shape, info)
    steps = _numbers(table, "steps") if "steps" in table.column_names else np.zeros(0)
    if len(steps) and not 0 <= steps.min() <= steps.max() <= (shape.steps_max or 0):
        yield f"steps are at most steps_max={shape.steps_max}, got {steps.min()} to {steps.max()}"


def _input_faults(
    tokens: np.ndarray, lengths: np.ndarray, shape: TaskShape, info: SplitInfo
) -> Iterator[str]:
    if not len(lengths):
        return
    shortest, longest = int(lengths.min()), int(lengths.max())
    if not max(1, info.length_min) <= shortest <= longest <= info.length_max:
        yield f"inputs have {info.length_min} to {info.length_max} tokens, got {shortest} to {longest}"
        return
    if info.role == "train" and longest > shape.length_max:
        yield f"training inputs have at most length_max={shape.length_max} tokens, got {longest}"
    if not 0 <= tokens.min() <= tokens.max() < shape.vocabulary_size:
        ids = f"ids from 0 to {shape.vocabulary_size - 1}"
        yield f"tokens are {ids}, got {tokens.min()} to {tokens.max()}"
    if np.any(tokens == shape.pad_id):
        yield f"no token is the padding's, {shape.pad_id}, got one that is"


def _target_faults(
    table: pa.Table, target: str, lengths: np.ndarray, shape: TaskShape, info: SplitInfo
) -> Iterator[str]:
    values = _numbers(table, target)
    if target == "targets":
        if not np.array_equal(_lengths(table, target), lengths):
            yield "targets are as many as tokens, got others"
            return
        values = values[values != NOT_ASKED]
        if not len(values) and len(lengths):
            yield f"at least one target is not {NOT_ASKED}, got {NOT_ASKED} for all targets"
    if len(values) and not 0 <= values.min() <= values.max() < shape.num_classes:
        range_text = f"got {values.min()} to {values.max()}"
        yield f"{target} holds classes from 0 to {shape.num_classes - 1}, {range_text}"
    if target == "answer":
        if np.any(values == shape.end_id):
            yield f"answers come without their end token, {shape.end_id}, got one with it"
        longest = int(_lengths(table, target).max(initial=0)) + 1
        if info.role == "train" and longest > (shape.answer_length_max or 0):
            limit = shape.answer_length_max
            yield f"training answers have at most {limit} tokens with their end, got {longest}"


def _batch_faults(batch: object, shape: TaskShape, info: SplitInfo) -> Iterator[str]:
    if not isinstance(batch, Batch):
        yield f"stream returns a trainables.types.Batch, got {type(batch).__name__}"
        return
    tokens, mask, labels = batch.tokens, batch.mask, batch.labels
    if tokens.ndim != 2 or mask.shape != tokens.shape or mask.dtype != torch.bool:
        yield (
            f"tokens and their mask of truth values are both (N, S), got {tuple(tokens.shape)} and "
            f"{tuple(mask.shape)} of {mask.dtype}"
        )
        return
    dimensions = {"positions": 2, "sequence": 2}.get(shape.head, 1)
    of_tokens = shape.head == "positions" and labels.shape != tokens.shape
    if labels.ndim != dimensions or len(labels) != len(tokens) or of_tokens:
        yield f"labels are one {'a token' if of_tokens else 'an example'}, got {tuple(labels.shape)}"
        return
    lengths = mask.sum(1)
    if not torch.equal(mask, torch.arange(mask.shape[1]) < lengths[:, None]):
        yield "inputs are padded on the right, got another mask"
        return
    yield from _input_faults(tokens[mask].numpy(), lengths.numpy(), shape, info)
    targets = labels[labels != NOT_ASKED]
    if len(targets) and not 0 <= targets.min() <= targets.max() < shape.num_classes:
        yield f"labels are from 0 to {shape.num_classes - 1}, got {targets.min()} to {targets.max()}"


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _flat(table: pa.Table, name: str) -> pa.ChunkedArray:
    import pyarrow.compute as pc  # import late, because checking settings must be quick

    column = table[name]
    return pc.list_flatten(column) if _is_list(column.type) else column


def _numbers(table: pa.Table, name: str) -> np.ndarray:
    values: np.ndarray = _flat(table, name).to_numpy()
    return values


def _lengths(table: pa.Table, name: str) -> np.ndarray:
    import pyarrow.compute as pc

    lengths: np.ndarray = pc.list_value_length(table[name]).to_numpy()
    return lengths


def _row_starts(lengths: np.ndarray) -> np.ndarray:
    """Return the index of the first value of each row in the concatenated rows; no row is empty."""
    starts: np.ndarray = np.cumsum(lengths) - lengths
    return starts
