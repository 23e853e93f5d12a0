"""Tally halting and experts over many examples: depth by length and by operators, use of experts.

The examples are a fixed part of the test splits, the same in every trial, at the end of a confirm trial.
Tallies of operators need a task with token classes (`task_catalog.token_classes`); in other tasks all tokens
have one class. The records are JSON values:

    kind "lengths"    `split`, and bins of its examples by tokens, of about equal size. Columns of a bin:
                      fewest and most tokens, examples, mean, 10th and 90th percentile of the depth, correct
                      answers, answers with a target, mean depth without halting.
    kind "operators"  the same by number of operators, in bins that are identical for all splits
    kind "experts"    a mixture, over all splits. `uses` counts the choices of each expert by token class,
                      over all layers that a token retained; `classes` names these classes. `layers` counts
                      the choices by layer. `words` lists for each expert the words that chose it most often.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import pairwise
from typing import Any, Final

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from trainables.layers.boundaries import NUM_BOUNDARIES
from trainables.recurrence.pass_records import PassRecord, watch_passes
from trainables.settings import Settings
from trainables.task_catalog import decode, shape, token_classes
from trainables.training.examples import LETTERS_MAX, sentences
from trainables.training.step import Learner, evaluating
from trainables.types import Batch, Output

EXAMPLES_MAX: Final = 256
"""Greatest number of examples of each split."""
OPERATOR: Final = "operator"
BOUNDARY: Final = "START, END"
WORD: Final = "word"
"""Class of all tokens in a task without token classes."""
TOP_WORDS: Final = 5
"""Number of recorded words per expert, as in Tan et al., Sparse Universal Transformer, Table 3."""
MIXTURES: Final = ("attention", "feed-forward")
LENGTH_BINS: Final = 8
"""Greatest number of bins of a split."""
BIN_EXAMPLES_MIN: Final = 8
"""Approximate least number of examples in a bin of lengths; small splits have fewer bins."""
LAYERS_MAX: Final = 64
"""Greatest number of layers whose experts are counted separately; deeper layers are added to the last."""
NO_WORD: Final = -1
"""Token id of START and END."""
_OPERATOR_BIN_STARTS: Final = (*range(14), 17, 25, 33, 49, 65, 97, 129, 2**31)
"""Starts of the bins of operators: one bin per number up to 12, then increasingly wide bins."""


@torch.inference_mode()
def tally_examples(
    learner: Learner, splits: Mapping[str, Iterable[Batch]], task: Settings
) -> Iterator[dict[str, Any]]:
    """Yield the records for all batches of `splits`, which maps names to batches."""
    classes = token_classes(task)
    separator = getattr(learner.model, "separator_id", None)
    experts = _Experts(classes or (WORD,) * shape(task).vocabulary_size, separator)
    for split, batches in splits.items():
        depths = _Depths(classes, separator)
        with evaluating(learner):
            for batch in batches:
                with watch_passes() as watch:
                    output = learner.model(batch)
                # Transfer each batch once; reading row by row would wait for the device at each row.
                table = zip(batch.tokens.cpu(), batch.mask.cpu(), strict=True)
                rows = [row[mask].tolist() for row, mask in table]
                depths.add(rows, output)
                if watch.passes:
                    experts.add(rows, watch.passes[0])
        yield from depths.records(split)
    if experts.uses:
        yield {"kind": "experts", "examples": experts.examples, "mixtures": [*experts.mixtures(task)]}


@dataclass
class _Depths:
    """Depths of the examples of one split."""

    classes: tuple[str, ...]
    """Class of each token id; empty if the task has no token classes."""
    separator: int | None
    rows: list[tuple[int, int, float, float, float, float]] = field(default_factory=list)
    """Tokens, operators, depth, its bound, correct answers and answers with a target, for every example."""

    def add(self, rows: Sequence[list[int]], output: Output) -> None:
        """Add a batch whose tokens are `rows`."""
        lengths = map(len, rows)
        operators = [max(map(self._operators, sentences(row, self.separator))) for row in rows]
        columns = (output.encoded.depth, output.encoded.bound, output.hits, output.counts)
        values = (column.double().tolist() for column in columns)
        self.rows += zip(lengths, operators, *values, strict=True)

    def _operators(self, tokens: list[int]) -> int:
        return sum(self.classes[token] == OPERATOR for token in tokens) if self.classes else 0

    def records(self, split: str) -> Iterator[dict[str, Any]]:
        """Yield the records by tokens and, if the task has operators, by operators."""
        table = np.array(self.rows, dtype=np.float64).reshape(-1, 6)
        lengths, operators, values = table[:, 0], table[:, 1], table[:, 2:]
        yield {"kind": "lengths", "split": split, "bins": [*_bins(lengths, values, _quantiles(lengths))]}
        if OPERATOR in self.classes:
            yield {
                "kind": "operators",
                "split": split,
                "bins": [*_bins(operators, values, _OPERATOR_BIN_STARTS)],
            }


def _quantiles(values: np.ndarray) -> list[int]:
    """Divide the integers `values` into bins of about equal size; return their starts and the last end."""
    if not len(values):
        return []
    bins = min(LENGTH_BINS, max(1, len(values) // BIN_EXAMPLES_MIN))
    lower_bounds = np.quantile(values, np.arange(bins) / bins, method="lower")
    return [*np.unique(lower_bounds).astype(int).tolist(), int(values.max()) + 1]


def _bins(keys: np.ndarray, values: np.ndarray, ends: Sequence[int]) -> Iterator[list[float]]:
    """Yield one row per bin that contains examples.

    Columns of `values`: depth, its bound, correct answers, answers with a target.
    """
    for low, end in pairwise(ends):
        is_inside = (keys >= low) & (keys < end)
        if is_inside.any():
            depth = values[is_inside, 0]
            depths = [depth.mean(), *np.percentile(depth, (10, 90))]
            bound = round(float(values[is_inside, 1].mean()), 4)
            counts = [int(value) for value in values[is_inside, 2:].sum(0)]
            highest = int(keys[is_inside].max())
            yield [low, highest, len(depth), *(round(float(value), 4) for value in depths), *counts, bound]


@dataclass
class _Experts:
    """Uses of experts, summed over the batches of all splits."""

    classes: tuple[str, ...]
    separator: int | None
    examples: int = 0
    uses: dict[int, dict[int, np.ndarray]] = field(default_factory=dict)
    """Number of uses per class and expert, by mixture and by layer, counted from 1."""
    choices: dict[int, Counter[tuple[int, int]]] = field(default_factory=dict)
    """By mixture: number of times that a token id chose an expert, over all layers."""

    @property
    def names(self) -> list[str]:
        """Return the name of every token class once, followed by the class of START and END."""
        return [*dict.fromkeys(self.classes), BOUNDARY]

    def add(self, rows: Sequence[list[int]], pass_record: PassRecord) -> None:
        """Add a batch whose tokens are `rows`."""
        self.examples += len(rows)
        if not any(layer.side for layer in pass_record.layers):
            return
        # For pairs, all first sentences are encoded before the second ones.
        parts = zip(*(sentences(row, self.separator) for row in rows), strict=True)
        encoded = [sentence for sentences in parts for sentence in sentences]
        classes, ids = self._classes_and_ids(encoded, pass_record)
        token_classes, tokens = (
            torch.tensor(indices, device=pass_record.packing.row.device) for indices in (classes, ids)
        )
        for layer in pass_record.layers:
            for number, (scores, experts_chosen) in enumerate(
                zip(layer.side[::2], layer.side[1::2], strict=True)
            ):
                experts = scores.shape[1]
                if experts > 1:
                    kind = (
                        token_classes[layer.tokens][layer.keeps][:, None] * experts
                        + experts_chosen[layer.keeps]
                    )
                    size = len(self.names) * experts
                    use_counts = torch.bincount(kind.flatten(), minlength=size).cpu().numpy()
                    layer_uses = self.uses.setdefault(number, {})
                    place = min(layer.number, LAYERS_MAX)
                    layer_uses[place] = layer_uses.get(place, np.zeros(size, dtype=np.int64)) + use_counts
                    word = tokens[layer.tokens][layer.keeps][:, None].expand_as(experts_chosen[layer.keeps])
                    self._count(number, word, experts_chosen[layer.keeps])

    def _count(self, mixture: int, words: Int[Tensor, "K A"], experts: Int[Tensor, "K A"]) -> None:
        """Count how often each token id chose each expert; START and END are not counted."""
        pairs = torch.stack((words, experts), dim=-1)[words != NO_WORD]
        pairs, counts = torch.unique(pairs, dim=0, return_counts=True)
        mixture_choices = self.choices.setdefault(mixture, Counter())
        mixture_choices.update(
            {(word, expert): n for (word, expert), n in zip(pairs.tolist(), counts.tolist(), strict=True)}
        )

    def _classes_and_ids(self, rows: list[list[int]], pass_record: PassRecord) -> tuple[list[int], list[int]]:
        """Return class (as index in `names`) and token id of each packed position."""
        number = {name: place for place, name in enumerate(self.names)}
        row_starts, classes, ids = pass_record.packing.starts.tolist(), list[int](), list[int]()
        for tokens, (start, end) in zip(rows, pairwise(row_starts), strict=True):
            edge = (end - start - len(tokens)) // NUM_BOUNDARIES
            boundary_classes = [number[BOUNDARY]] * edge
            classes += [
                *boundary_classes,
                *(number[self.classes[token]] for token in tokens),
                *boundary_classes,
            ]
            ids += [*[NO_WORD] * edge, *tokens, *[NO_WORD] * edge]
        return classes, ids

    def _words(self, mixture: int, experts: int, task: Settings) -> Iterator[list[list[Any]]]:
        """Yield for each expert the words that chose it most often; ties prefer the lower token id."""
        words_by_expert: list[list[tuple[int, int]]] = [[] for _ in range(experts)]
        for (word, expert), num_choices in self.choices.get(mixture, Counter()).items():
            words_by_expert[expert].append((-num_choices, word))
        for words_of_expert in words_by_expert:
            yield [
                [decode(task, [word])[:LETTERS_MAX], -num_choices]
                for num_choices, word in nsmallest(TOP_WORDS, words_of_expert)
            ]

    def mixtures(self, task: Settings) -> Iterator[dict[str, Any]]:
        """Yield a record per mixture; it omits classes without tokens and layers that no token retained."""
        for number, layers in sorted(self.uses.items()):
            tables = {
                layer: uses.reshape(len(self.names), -1)
                for layer, uses in sorted(layers.items())
                if uses.any()
            }
            if not tables:
                continue
            table = np.sum([*tables.values()], axis=0)
            used_classes = [place for place in range(len(self.names)) if table[place].any()]
            yield {
                "name": MIXTURES[number] if number < len(MIXTURES) else f"mixture {number + 1}",
                "classes": [self.names[place] for place in used_classes],
                "uses": [table[place].tolist() for place in used_classes],
                "layers": [[layer, table.sum(0).tolist()] for layer, table in tables.items()],
                "words": [*self._words(number, table.shape[1], task)],
            }
