"""Record halting on single examples: for each token and layer whether the token was active, and its weight.

A few fixed examples of one split, the same in every trial that evaluates it, are recorded one by one at the
end of a confirm trial. The records are JSON values of bounded size:

    split, number     split and index of the example
    target, answer    label and prediction in words, if there is one of each; else None
    hits, counts      number of correct predictions, and of predictions with a target
    depth             number of layers retained, the mean over tokens if tokens halt individually
    meaning           meaning of the weights, see `trainables.recurrence.pass_records`
    parts             the two sentences of a pair, else the input: `words` (with START and END if the model
                      adds them), `length` before truncation, and `running`: for each word a list over
                      layers, the weight in percent, or -1 if the word had halted
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from trainables.data.draws import permutation
from trainables.layers.boundaries import NUM_BOUNDARIES
from trainables.recurrence.pass_records import ForwardWatch, PassRecord, watch_passes
from trainables.settings import Settings
from trainables.streams import numpy_stream
from trainables.task_catalog import decode, label_names, shape
from trainables.training.step import Learner, evaluating
from trainables.types import Batch, Output

MAX_WORDS: Final = 64
"""Greatest number of words recorded per input; more cannot be displayed side by side."""
LAYERS_MAX: Final = 32
LETTERS_MAX: Final = 24
"""Greatest number of letters recorded per word."""
_SEED: Final = 0


def fixed_sample(examples: int, count: int) -> np.ndarray:
    """Return the indices of the `count` recorded examples, drawn once and identical in every trial."""
    return np.sort(permutation(numpy_stream(_SEED, "halting-examples"), examples)[:count])


@torch.inference_mode()
def record_example(learner: Learner, batch: Batch, task: Settings) -> dict[str, Any]:
    """Return the record of a pass on the single example of `batch`; empty if the model never halts."""
    with evaluating(learner), watch_passes() as watch:
        output = learner.model(batch)
    halting_pass = next((watched for watched in watch.passes if watched.halts), None)
    if halting_pass is None:
        return {}
    return {
        **_answer(output, watch, batch, task),
        "depth": round(float(output.encoded.depth[0]), 4),
        "meaning": halting_pass.meaning,
        "parts": [*_parts(halting_pass, batch, task, learner.model)],
    }


def _answer(output: Output, watch: ForwardWatch, batch: Batch, task: Settings) -> Mapping[str, Any]:
    hits, counts = int(output.hits[0]), int(output.counts[0])
    record: dict[str, Any] = {"target": None, "answer": None, "hits": hits, "counts": counts}
    if batch.labels.dim() == 1 and watch.answers:
        names = label_names(task)
        record |= {"target": names[int(batch.labels[0])], "answer": names[int(watch.answers[-1][0])]}
    return record


def _parts(
    pass_record: PassRecord, batch: Batch, task: Settings, model: nn.Module
) -> Sequence[Mapping[str, Any]]:
    """Return one record per row of the batch, i.e. per sentence of the example."""
    tokens = batch.tokens[0][batch.mask[0]].tolist()
    rows = sentences(tokens, getattr(model, "separator_id", None))
    percent, row_starts = (
        _percent(pass_record.weights_by_layer()).tolist(),
        pass_record.packing.starts.tolist(),
    )
    weights = [percent[start:end] for start, end in pairwise(row_starts)]
    return [_part(row, weight, task) for row, weight in zip(rows, weights, strict=True)]


def sentences(tokens: list[int], separator: int | None) -> list[list[int]]:
    """Split the tokens of a pair into its two sentences; return the full input if it has no `separator`."""
    if separator is None:
        return [tokens]
    middle = tokens.index(separator)
    return [tokens[:middle], tokens[middle + 1 :]]


def _part(tokens: list[int], percents: list[list[int]], task: Settings) -> dict[str, Any]:
    has_boundaries = len(percents) == len(tokens) + NUM_BOUNDARIES
    words = [_word(task, token) for token in tokens[:MAX_WORDS]]
    words = ["START", *words, "END"] if has_boundaries else words
    return {
        "words": words[:MAX_WORDS],
        "length": len(percents),
        "running": [row[:LAYERS_MAX] for row in percents[:MAX_WORDS]],
    }


def _percent(weights: Tensor) -> Tensor:
    """Return the weights in whole percent; -1 remains -1."""
    finite = torch.nan_to_num(weights.double().cpu(), nan=0.0)
    return torch.where(finite < 0, -1.0, (100 * finite).round()).to(torch.int64)


def _word(task: Settings, token: int) -> str:
    """Return one token as readable text; its number if the task cannot decode a single token."""
    if token == shape(task).pad_id:
        return ""
    try:
        return decode(task, [token])[:LETTERS_MAX] or str(token)
    except Exception:  # a task of another package may decode only full inputs, and that must not end a trial
        return str(token)
