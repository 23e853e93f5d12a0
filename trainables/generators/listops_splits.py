"""ListOps splits: vocabulary, distributions of splits, unique trees, tables. Shared by all ListOps tasks."""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count

import numpy as np
import pyarrow as pa

from trainables.data.draws import first_unseen
from trainables.data.progress import report
from trainables.data.ragged import concatenate
from trainables.generators.listops_lengths import LengthLaw
from trainables.generators.listops_trees import Law, Trees
from trainables.settings import Settings
from trainables.streams import numpy_stream
from trainables.types import TaskShape

WORDS = (*"0123456789", "[MIN", "[MAX", "[MED", "[SM", "]", "<unk>", "<pad>", "<sep>")
"""Token ids are positions in this list. The last three never occur in a tree."""
PAD = WORDS.index("<pad>")
DRAW_TOKENS = 2_000_000
"""Expected tokens of one round of draws; bounds memory and is part of what makes the data what it is."""


@dataclass(frozen=True, slots=True)
class SplitLaw:
    """Trees of a distribution (`Law`), within bounds; all bounds are included."""

    law: Law
    lengths: tuple[int, int]
    """Fewest and most tokens."""
    examples: int
    nesting: tuple[int, int] | None = None
    """Fewest and most nested operators, if not any."""


def length_test(bounds: Sequence[int]) -> str:
    """The split of lengths strictly between two bounds."""
    low, high = bounds
    return f"length-{low}-{high}"


def length_tests(ranges: Iterable[tuple[int, int]], examples: int) -> dict[str, SplitLaw]:
    """Splits `length-<low>-<high>`, bounds excluded, of the law of ListOps-O."""
    return {
        length_test((low, high)): SplitLaw(Law(20, 5), (low + 1, high - 1), examples) for low, high in ranges
    }


def generate(split: SplitLaw, data_seed: int, name: tuple[str, ...], seen: set[Hashable]) -> Trees:
    """Different trees, none of them in `seen`, from the streams called `name`."""
    shortest, longest = split.lengths
    roots = min(split.examples, DRAW_TOKENS // longest)
    if split.nesting is not None:
        roots = DRAW_TOKENS // longest  # most draws are left out, whatever is asked for
    lengths = _length_law(split.law, longest)
    streams = (numpy_stream(data_seed, *name, turn) for turn in count())
    draws = (lengths.draw(stream, roots, shortest, longest) for stream in streams)
    return first_unique((_nested(drawn, split.nesting) for drawn in draws), split.examples, seen)


@lru_cache(maxsize=16)
def _length_law(law: Law, longest: int) -> LengthLaw:
    """A megabyte or two each; all splits of a task have fewer, and some those of other tasks."""
    return LengthLaw(law, longest)


def _nested(drawn: Trees, bounds: tuple[int, int] | None) -> Trees:
    if bounds is None:
        return drawn
    nesting = drawn.nesting()
    return drawn.take(np.flatnonzero((nesting >= bounds[0]) & (nesting <= bounds[1])))


def first_unique(draws: Iterator[Trees], wanted: int, seen: set[Hashable]) -> Trees:
    """The first `wanted` trees of `draws` that are not in `seen` and not drawn before."""
    kept: list[Trees] = []
    missing = wanted
    while missing:
        drawn = next(draws)
        new = np.asarray(first_unseen(drawn.rows(), seen, missing), dtype=np.int64)
        kept.append(drawn.take(new))
        missing -= len(new)
        report("trees", wanted - missing, wanted)
    return concatenate(kept)


def listops_shape(length_max: int) -> TaskShape:
    """Return a shape with ten classes over 18 words."""
    return TaskShape(
        head="classify", vocabulary_size=len(WORDS), num_classes=10, pad_id=PAD, length_max=length_max
    )


def decode(tokens: Sequence[int]) -> str:
    """Return readable text, e.g. `[MAX 2 [SM 9 4 ] ]`."""
    return " ".join(WORDS[token] for token in tokens)


def token_classes(config: Settings) -> tuple[str, ...]:  # noqa: ARG001 the same for all settings
    """Digits, operators, the closing bracket, and what is no part of a tree."""
    kinds = {"]": "bracket"} | dict.fromkeys(WORDS[-3:], "other")
    return tuple(kinds.get(word, "operator" if word[0] == "[" else "digit") for word in WORDS)


def table_of(trees: Trees) -> pa.Table:
    """Columns `tokens` and `label`."""
    tokens = pa.LargeListArray.from_arrays(pa.array(trees.offsets), pa.array(trees.tokens))
    return pa.table({"tokens": tokens, "label": pa.array(trees.labels)})
