"""Generate ListOps trees, many at a time: grown by level, evaluated upwards, written as tokens.

The process is that of Nangia and Bowman 2018, "ListOps: A Diagnostic Dataset for Latent Tree Learning". A
node above the depth limit is an operator with probability 1/4 (0.3 in later variants), else a digit. An
operator takes a uniform number of arguments and is one of MIN, MAX, MED (median, truncated) and SM (sum
modulo 10).

A forest is a list of levels. The children of a level's operators are the nodes of the next level, in order,
so no pointers are stored and every pass over a level is one array operation.
"""

from dataclasses import dataclass

import numpy as np

from trainables.data.draws import draw_integers, uniform
from trainables.data.ragged import LabelledRows, row_offsets

MIN, MAX, MED, SM, CLOSE = 10, 11, 12, 13, 14
OPERATORS = (MIN, MAX, MED, SM)


@dataclass(frozen=True, slots=True)
class Law:
    """Distribution of the trees that the process draws."""

    depth_max: int
    """Number of levels, including the level of digits: at most `depth_max - 1` nested operators."""
    arguments_max: int
    """Greatest number of arguments of an operator; the least is 2."""
    operator_probability: float = 0.25
    """Probability that a node above the depth limit is an operator."""

    def longest(self) -> int:
        """Return the number of tokens of the longest tree."""
        length = 1
        for _ in range(self.depth_max - 1):
            length = 2 + self.arguments_max * length
        return length

    def distinct(self) -> int:
        """Return the number of different trees; beyond 10^18 only a lower bound."""
        count = 10
        for _ in range(self.depth_max - 1):
            if count > 10**18:
                break
            count = 10 + len(OPERATORS) * sum(count**k for k in range(2, self.arguments_max + 1))
        return count

    def mean_length(self) -> float:
        """Return the expected number of tokens of a drawn tree; single digits count too."""
        arguments = (2 + self.arguments_max) / 2
        mean = 1.0
        for _ in range(self.depth_max - 1):
            mean = 1 - self.operator_probability + self.operator_probability * (2 + arguments * mean)
        return mean


@dataclass(frozen=True, slots=True)
class Level:
    """Nodes of all trees at one depth."""

    symbols: np.ndarray
    """uint8: a digit, or one of `OPERATORS`."""
    arity: np.ndarray
    """int64: number of arguments, 0 for a digit."""


class Trees(LabelledRows):
    """Trees with their values as labels."""

    __slots__ = ()

    def nesting(self) -> np.ndarray:
        """Return the nesting depth of operators of each tree (int64)."""
        opening = (self.tokens >= MIN) & (self.tokens < CLOSE)
        # Every tree closes its brackets, so one running sum serves all trees.
        depth = np.cumsum(opening.astype(np.int64) - (self.tokens == CLOSE))
        return np.asarray(np.maximum.reduceat(depth, self.offsets[:-1]))

    def between(self, start: int, stop: int) -> "Trees":
        """Return the trees from index `start` to before `stop` as views; only offsets are copied."""
        first_token, end_token = self.offsets[start], self.offsets[stop]
        offsets = self.offsets[start : stop + 1] - first_token
        return Trees(self.tokens[first_token:end_token], offsets, self.labels[start:stop])


def level(stream: np.random.Generator, arity: np.ndarray) -> Level:
    """Draw a digit or an operator for each node of the given arity (0 is a digit)."""
    digits = draw_integers(stream, len(arity), 10)
    operators = MIN + draw_integers(stream, len(arity), len(OPERATORS))
    return Level(np.where(arity > 0, operators, digits).astype(np.uint8), arity)


def grow(stream: np.random.Generator, law: Law, n: int) -> Trees:
    """Return `n` independent draws of the process."""
    levels: list[Level] = []
    for depth in range(1, law.depth_max + 1):
        arity = 2 + draw_integers(stream, n, law.arguments_max - 1)
        arity[uniform(stream, n) >= law.operator_probability] = 0
        if depth == law.depth_max:
            arity[:] = 0
        levels.append(level(stream, arity))
        n = int(arity.sum())
        if not n:
            break
    return render(levels)


def render(levels: list[Level]) -> Trees:
    """Evaluate the forest whose roots are `levels[0]` and write its tokens."""
    values = sizes = np.zeros(0, dtype=np.int64)
    all_sizes: list[np.ndarray] = []
    for nodes in reversed(levels):
        values = evaluate(nodes, values)
        sizes = _subtree_sizes(nodes, sizes)
        all_sizes.append(sizes)
    offsets = row_offsets(sizes)
    tokens = np.empty(offsets[-1], dtype=np.uint8)
    starts = offsets[:-1]
    for index, nodes in enumerate(levels):
        sizes = all_sizes[-1 - index]
        inner = nodes.arity > 0
        tokens[starts] = nodes.symbols
        tokens[(starts + sizes - 1)[inner]] = CLOSE
        if index + 1 < len(levels):
            starts = child_starts(nodes.arity[inner], starts[inner], all_sizes[-2 - index])
    return Trees(tokens, offsets, values.astype(np.int16))


def evaluate(nodes: Level, below_values: np.ndarray) -> np.ndarray:
    """Return the values of the nodes of a level, given the values of the next level."""
    values = nodes.symbols.astype(np.int64)
    first_children = row_offsets(nodes.arity)[:-1]
    for arity in np.unique(nodes.arity[nodes.arity > 0]).tolist():
        with_arity = np.flatnonzero(nodes.arity == arity)
        arguments = np.sort(below_values[first_children[with_arity, None] + np.arange(arity)], axis=1)
        median = (arguments[:, (arity - 1) // 2] + arguments[:, arity // 2]) // 2
        outcomes = np.stack([arguments[:, 0], arguments[:, -1], median, arguments.sum(axis=1) % 10])
        values[with_arity] = outcomes[nodes.symbols[with_arity] - MIN, np.arange(len(with_arity))]
    return values


def _subtree_sizes(nodes: Level, below_sizes: np.ndarray) -> np.ndarray:
    """Return the number of tokens of each subtree: operator, arguments and bracket, or one digit."""
    bounds = row_offsets(below_sizes)[row_offsets(nodes.arity)]
    sizes: np.ndarray = np.diff(bounds) + np.where(nodes.arity > 0, 2, 1)
    return sizes


def child_starts(arity: np.ndarray, parent_starts: np.ndarray, child_sizes: np.ndarray) -> np.ndarray:
    """Return the index of each child's first token: after its parent's operator and its earlier siblings."""
    elder_sizes = row_offsets(child_sizes)[:-1]
    first_children = row_offsets(arity)[:-1]
    starts: np.ndarray = np.repeat(parent_starts + 1 - elder_sizes[first_children], arity) + elder_sizes
    return starts
