"""Define ListOps splits: vocabulary, distributions, unique trees, tables. All ListOps tasks use them."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

import numpy as np
import pyarrow as pa

from trainables.data.draws import find_new
from trainables.data.progress import report
from trainables.data.ragged import concatenate
from trainables.generators.listops_lengths import LengthLaw
from trainables.generators.listops_trees import Law, Trees
from trainables.settings import Settings
from trainables.streams import numpy_stream
from trainables.types import TaskShape

WORDS = (*"0123456789", "[MIN", "[MAX", "[MED", "[SM", "]", "<unk>", "<pad>", "<sep>")
"""Words by token id. The last three never occur in a tree."""
PAD = WORDS.index("<pad>")
DRAW_TOKENS = 2_000_000
"""Expected tokens of one round of draws. It bounds memory; another value would change the data."""


@dataclass(frozen=True, slots=True)
class SplitLaw:
    """Trees of a distribution (`Law`) within inclusive bounds."""

    law: Law
    lengths: tuple[int, int]
    """Least and greatest number of tokens."""
    examples: int
    nesting: tuple[int, int] | None = None
    """Least and greatest number of nested operators; None for no bounds."""


def length_test(bounds: Sequence[int]) -> str:
    """Return the name of the split of lengths strictly between two bounds."""
    low, high = bounds
    return f"length-{low}-{high}"


def length_tests(ranges: Iterable[tuple[int, int]], examples: int) -> dict[str, SplitLaw]:
    """Return splits `length-<low>-<high>`: trees longer than <low>, shorter than <high>, as in ListOps-O."""
    return {
        length_test((low, high)): SplitLaw(Law(20, 5), (low + 1, high - 1), examples) for low, high in ranges
    }


def generate(split: SplitLaw, data_seed: int, name: tuple[str, ...], seen: set[Hashable]) -> Trees:
    """Return different trees that are not in `seen`, from the streams called `name`."""
    shortest, longest = split.lengths
    roots = min(split.examples, DRAW_TOKENS // longest)
    if split.nesting is not None:
        roots = DRAW_TOKENS // longest  # most draws are discarded, independent of the requested number
    lengths = _length_law(split.law, longest)
    streams = (numpy_stream(data_seed, *name, round_index) for round_index in count())
    draws = (lengths.draw(stream, roots, shortest, longest) for stream in streams)
    return first_unique((_filter_nesting(trees, split.nesting) for trees in draws), split.examples, seen)


@lru_cache(maxsize=16)
def _length_law(law: Law, longest: int) -> LengthLaw:
    """Return the distribution of lengths, cached: one or two megabytes for each of a task's distributions."""
    return LengthLaw(law, longest)


def _filter_nesting(trees: Trees, bounds: tuple[int, int] | None) -> Trees:
    if bounds is None:
        return trees
    nesting = trees.nesting()
    return trees.take(np.flatnonzero((nesting >= bounds[0]) & (nesting <= bounds[1])))


def first_unique(draws: Iterator[Trees], count: int, seen: set[Hashable]) -> Trees:
    """Return the first `count` trees of `draws` that are not in `seen`, without duplicates."""
    parts: list[Trees] = []
    num_wanted = count
    while num_wanted:
        candidates = next(draws)
        unseen = np.asarray(find_new(candidates.rows(), seen, num_wanted), dtype=np.int64)
        parts.append(candidates.take(unseen))
        num_wanted -= len(unseen)
        report("trees", count - num_wanted, count)
    return concatenate(parts)


def listops_shape(length_max: int) -> TaskShape:
    """Return the sizes of ListOps: ten classes and a vocabulary of 18 words."""
    return TaskShape(
        head="classify", vocabulary_size=len(WORDS), num_classes=10, pad_id=PAD, length_max=length_max
    )


def decode(tokens: Sequence[int]) -> str:
    """Return readable text, e.g. `[MAX 2 [SM 9 4 ] ]`."""
    return " ".join(WORDS[token] for token in tokens)


def token_classes(config: Settings) -> tuple[str, ...]:  # noqa: ARG001 the same for all settings
    """Return the class of each token: digit, operator, closing bracket, or not part of a tree."""
    kinds = {"]": "bracket"} | dict.fromkeys(WORDS[-3:], "other")
    return tuple(kinds.get(word, "operator" if word[0] == "[" else "digit") for word in WORDS)


def tree_table(trees: Trees) -> pa.Table:
    """Return columns `tokens` and `label`."""
    return pa.table({"tokens": trees.column(), "label": pa.array(trees.labels)})
