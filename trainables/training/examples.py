"""What halting does on single examples: for each token and layer whether it still ran, with what weight.

A few fixed examples of one split, the same in every trial that reads it, looked at one by one at the end of a
confirm trial. What is kept are JSON values of bounded size:

    split, number     which example of which split
    target, answer    label and prediction in words, where there is one of each; else None
    hits, counts      right predictions, and all that were asked for
    depth             layers kept, the mean over tokens where they halt one by one
    meaning           of the weights, see `trainables.recurrence.watching`
    parts             of a pair its two sentences, else the input: `words` (START and END included where the
                      model adds them), `length` before it was cut, and `running`: for each word a list over
                      layers, the weight in percent, or -1 where the word had halted
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from trainables.layers.boundaries import NUM_BOUNDARIES
from trainables.layers.plain import evaluation_stream
from trainables.recurrence.watching import ForwardWatch, PassSeen, watching
from trainables.settings import Settings
from trainables.streams import numpy_stream
from trainables.task_catalog import decode, label_names, shape
from trainables.threads import cpu_threads
from trainables.training.step import Learner
from trainables.types import Batch, Output

MOST_WORDS: Final = 64
"""Of an input that are kept; more cannot be read side by side."""
MOST_LAYERS: Final = 32
MOST_LETTERS: Final = 24
"""Of a word."""
_SEED: Final = 0


def chosen(examples: int, count: int) -> np.ndarray:
    """Which `count` of so many examples are looked at: drawn once, the same in every trial."""
    # Sorting raw output is the same in every NumPy version, which `Generator.choice` does not promise.
    keys = numpy_stream(_SEED, "halting-examples").bit_generator.random_raw(examples)
    return np.sort(np.argsort(keys, kind="stable")[:count])


@torch.inference_mode()
def seen_of(learner: Learner, batch: Batch, task: Settings) -> dict[str, Any]:
    """What a forward pass on the one example of `batch` shows; empty for a model that never halts."""
    learner.model.eval()
    drawn = evaluation_stream(learner.model, learner.seed)
    with cpu_threads(learner.config.threads), learner.autocast(), drawn, watching() as watch:
        output = learner.model(batch)
    learner.model.train()
    found = next((each for each in watch.passes if each.halts), None)
    if found is None:
        return {}
    return {
        **_answer(output, watch, batch, task),
        "depth": round(float(output.encoded.depth[0]), 4),
        "meaning": found.meaning,
        "parts": [*_parts(found, batch, task, learner.model)],
    }


def _answer(output: Output, watch: ForwardWatch, batch: Batch, task: Settings) -> Mapping[str, Any]:
    hits, counts = int(output.hits[0]), int(output.counts[0])
    found: dict[str, Any] = {"target": None, "answer": None, "hits": hits, "counts": counts}
    if batch.labels.dim() == 1 and watch.answers:
        names = label_names(task)
        found |= {"target": names[int(batch.labels[0])], "answer": names[int(watch.answers[-1][0])]}
    return found


def _parts(seen: PassSeen, batch: Batch, task: Settings, model: nn.Module) -> Sequence[Mapping[str, Any]]:
    """Row by row of the pass, as many as the example has sentences."""
    tokens = batch.tokens[0][batch.mask[0]].tolist()
    rows = sentences(tokens, getattr(model, "separator_id", None))
    percent, ends = _percent(seen.running()).tolist(), seen.packing.starts.tolist()
    weights = [percent[start:end] for start, end in pairwise(ends)]
    return [_part(row, weight, task) for row, weight in zip(rows, weights, strict=True)]


def sentences(tokens: list[int], separator: int | None) -> list[list[int]]:
    """Both of a pair, else the whole input."""
    if separator is None:
        return [tokens]
    middle = tokens.index(separator)
    return [tokens[:middle], tokens[middle + 1 :]]


def _part(tokens: list[int], running: list[list[int]], task: Settings) -> dict[str, Any]:
    bounded = len(running) == len(tokens) + NUM_BOUNDARIES
    words = [_word(task, token) for token in tokens[:MOST_WORDS]]
    words = ["START", *words, "END"] if bounded else words
    return {
        "words": words[:MOST_WORDS],
        "length": len(running),
        "running": [row[:MOST_LAYERS] for row in running[:MOST_WORDS]],
    }


def _percent(weights: Tensor) -> Tensor:
    """Whole percent; -1 stays -1."""
    finite = torch.nan_to_num(weights.double().cpu(), nan=0.0)
    return torch.where(finite < 0, -1.0, (100 * finite).round()).to(torch.int64)


def _word(task: Settings, token: int) -> str:
    """One token as a person would write it; its number where a single one has no words."""
    if token == shape(task).pad_id:
        return ""
    try:
        return decode(task, [token])[:MOST_LETTERS] or str(token)
    except Exception:  # a task of others may read whole inputs only; no trial ends for it
        return str(token)
