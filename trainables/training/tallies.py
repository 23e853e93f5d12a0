"""What halting and experts do on many examples together: depth by operators, experts by class of word.

Of a fixed part of the test splits, the same in every trial, at the end of a confirm trial. Both need a task
that says of which class its tokens are (`task_catalog.token_classes`). What is kept are JSON values:

    kind "operators"  bins: fewest and most operators, examples, mean, 10th and 90th percentile of the depth,
                      right answers, answers asked for
    kind "experts"    mixtures: by `name`, `classes` and for each of them `uses`, how often each expert was
                      chosen, over all layers that a token kept
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from trainables.layers.boundaries import NUM_BOUNDARIES
from trainables.recurrence.watching import PassSeen, watching
from trainables.settings import Settings
from trainables.task_catalog import token_classes
from trainables.threads import cpu_threads
from trainables.training.examples import sentences
from trainables.training.step import Learner
from trainables.types import Batch, Output

MOST_EXAMPLES: Final = 256
"""Of each split."""
OPERATOR: Final = "operator"
BOUNDARY: Final = "START, END"
MIXTURES: Final = ("attention", "feed-forward")
_ENDS: Final = (*range(14), 17, 25, 33, 49, 65, 97, 129, 2**31)
"""Where bins of operators begin: one a number up to 12, then ever wider."""


@torch.inference_mode()
def tallied(learner: Learner, batches: Iterable[Batch], task: Settings) -> Iterator[dict[str, Any]]:
    """What is kept of all `batches`; nothing for a task without classes."""
    classes = token_classes(task)
    if not classes:
        return
    tally = _Tally(classes, getattr(learner.model, "separator_id", None))
    learner.model.eval()
    with cpu_threads(learner.config.threads), learner.autocast():
        for batch in batches:
            with watching() as watch:
                output = learner.model(batch)
            tally.add(batch, output, watch.passes[0] if watch.passes else None)
    learner.model.train()
    if OPERATOR in classes:
        yield {"kind": "operators", "bins": [*tally.bins()]}
    if tally.uses:
        yield {"kind": "experts", "examples": len(tally.rows), "mixtures": [*tally.mixtures()]}


@dataclass
class _Tally:
    """Sums over batches."""

    classes: tuple[str, ...]
    """By token id."""
    separator: int | None
    rows: list[tuple[int, float, float, float]] = field(default_factory=list)
    """Of every example operators, depth, right answers, answers asked for."""
    uses: dict[int, np.ndarray] = field(default_factory=dict)
    """By mixture, times of every class and expert."""

    @property
    def names(self) -> list[str]:
        """Every class once, and that of START and END."""
        return [*dict.fromkeys(self.classes), BOUNDARY]

    def add(self, batch: Batch, output: Output, seen: PassSeen | None) -> None:
        """One more batch."""
        parts = [
            sentences(row[mask].tolist(), self.separator) for row, mask in zip(*_cpu(batch), strict=True)
        ]
        depths, hits, counts = (
            each.double().tolist() for each in (output.encoded.depth, output.hits, output.counts)
        )
        operators = [max(self._operators(part) for part in each) for each in parts]
        self.rows += zip(operators, depths, hits, counts, strict=True)
        if seen is not None and any(each.side for each in seen.layers):
            # Of pairs all first sentences are encoded before the second ones.
            self._count([row for which in zip(*parts, strict=True) for row in which], seen)

    def _operators(self, tokens: list[int]) -> int:
        return sum(self.classes[token] == OPERATOR for token in tokens)

    def _count(self, rows: list[list[int]], seen: PassSeen) -> None:
        where = torch.tensor(self._classes_of(rows, seen), device=seen.packing.row.device)
        for layer in seen.layers:
            for number, (scores, chosen) in enumerate(zip(layer.side[::2], layer.side[1::2], strict=True)):
                experts = scores.shape[1]
                if experts > 1:
                    kind = where[layer.tokens][layer.keeps][:, None] * experts + chosen[layer.keeps]
                    size = len(self.names) * experts
                    found = torch.bincount(kind.flatten(), minlength=size).cpu().numpy()
                    before = self.uses.get(number, np.zeros(size, dtype=np.int64))
                    self.uses[number] = before + found

    def _classes_of(self, rows: list[list[int]], seen: PassSeen) -> list[int]:
        """Class by packed position, as numbers in `names`."""
        number = {name: place for place, name in enumerate(self.names)}
        starts, found = seen.packing.starts.tolist(), list[int]()
        for tokens, (start, end) in zip(rows, pairwise(starts), strict=True):
            edge = [number[BOUNDARY]] * ((end - start - len(tokens)) // NUM_BOUNDARIES)
            found += [*edge, *(number[self.classes[token]] for token in tokens), *edge]
        return found

    def bins(self) -> Iterator[list[float]]:
        """Of operators, as far as there are examples."""
        table = np.array(self.rows, dtype=np.float64).reshape(-1, 4)
        for low, end in pairwise(_ENDS):
            own = table[(table[:, 0] >= low) & (table[:, 0] < end)]
            if len(own):
                depth = own[:, 1]
                ends = np.percentile(depth, (10, 90)).tolist()
                shown = [float(depth.mean()), *ends]
                counts = [int(each) for each in own[:, 2:].sum(0)]
                most = int(own[:, 0].max())
                yield [low, max(low, most), len(own), *(round(each, 4) for each in shown), *counts]

    def mixtures(self) -> Iterator[dict[str, Any]]:
        """Uses of each, of the classes that occurred."""
        for number, uses in sorted(self.uses.items()):
            table = uses.reshape(len(self.names), -1)
            there = [place for place in range(len(self.names)) if table[place].any()]
            name = MIXTURES[number] if number < len(MIXTURES) else f"mixture {number + 1}"
            yield {
                "name": name,
                "classes": [self.names[place] for place in there],
                "uses": [table[place].tolist() for place in there],
            }


def _cpu(batch: Batch) -> tuple[Tensor, Tensor]:
    return batch.tokens.cpu(), batch.mask.cpu()
