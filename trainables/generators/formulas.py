"""Generate propositional formulas, many at a time: grown by level, evaluated upwards, written as tokens.

The process is that of Bowman, Manning and Potts 2015, "Tree-Structured Composition in Neural Networks without
Tree-Structured Architectures". A budget of 12 is halved at every connective, so connectives nest at most
three deep. A node that may branch does so with probability 4/9. Every node is negated with probability 1/3.

A formula's truth table is one 64-bit word: bit w is its value in world w, a subset of the six variables. A
level contains the nodes of all formulas at one depth. The two children of the k-th connective of a level are
the nodes 2k and 2k + 1 of the next.
"""

from dataclasses import dataclass

import numpy as np

from trainables.data.draws import draw_integers, uniform
from trainables.data.ragged import row_offsets

WORDS = ("(", ")", "a", "b", "c", "d", "e", "f", "and", "or", "not")
OPEN, CLOSE, A, AND, OR, NOT = (WORDS.index(word) for word in ("(", ")", "a", "and", "or", "not"))
VARIABLES = 6
WORLDS = np.asarray(
    [sum(1 << world for world in range(64) if world >> variable & 1) for variable in range(VARIABLES)],
    dtype=np.uint64,
)
"""Truth table of each variable: the worlds in which it is true."""
BRANCHING, NEGATING = 4 / 9, 1 / 3
CONNECTIVES_DEEP = 3
CONNECTIVES_MAX = (1 << CONNECTIVES_DEEP) - 1


@dataclass(frozen=True, slots=True)
class Formulas:
    """Formulas as token rows, with their truth tables and numbers of operators."""

    tokens: np.ndarray
    """uint8, all rows in one flat array."""
    offsets: np.ndarray
    """int64, start of each formula and end of the last one."""
    truth: np.ndarray
    """uint64: worlds in which the formula is true."""
    num_operators: np.ndarray
    """int64: number of and, or, not."""


@dataclass(frozen=True, slots=True)
class _Level:
    symbol: np.ndarray
    """uint8: a variable, AND or OR."""
    negated: np.ndarray
    """bool."""

    @property
    def branching(self) -> np.ndarray:
        return np.asarray(self.symbol >= AND)


def grow(stream: np.random.Generator, variables: np.ndarray) -> Formulas:
    """Return one formula for each row of `variables` (N V), composed of these variables alone."""
    owner = np.arange(len(variables))
    levels: list[_Level] = []
    for depth in range(CONNECTIVES_DEEP + 1):
        n = len(owner)
        leaf = variables[owner, draw_integers(stream, n, variables.shape[1])] + A
        connective = AND + draw_integers(stream, n, 2)
        branching = (uniform(stream, n) < BRANCHING) & (depth < CONNECTIVES_DEEP)
        symbol = np.where(branching, connective, leaf).astype(np.uint8)
        levels.append(_Level(symbol, uniform(stream, n) < NEGATING))
        owner = np.repeat(owner[branching], 2)
    return _render(levels)


def _render(levels: list[_Level]) -> Formulas:
    """Evaluate the forest whose roots are `levels[0]` and write its tokens."""
    truth = np.zeros(0, dtype=np.uint64)
    num_operators = sizes = np.zeros(0, dtype=np.int64)
    sizes_below: list[np.ndarray] = []
    for nodes in reversed(levels):
        sizes_below.append(sizes)
        branching = nodes.branching
        truth = _evaluate(nodes, truth)
        num_operators = _sum_children(branching, num_operators) + branching + nodes.negated
        sizes = _sum_children(branching, sizes) + np.where(branching, 5, 1) + 3 * nodes.negated
    offsets = row_offsets(sizes)
    tokens = np.empty(offsets[-1], dtype=np.uint8)
    starts = offsets[:-1]
    for nodes, below_sizes in zip(levels, reversed(sizes_below), strict=True):
        starts = _write(tokens, nodes, starts, below_sizes)
    return Formulas(tokens, offsets, truth, num_operators)


def _sum_children(branching: np.ndarray, below_values: np.ndarray) -> np.ndarray:
    """Return the sum of `below_values` over both children of each node; 0 for a variable."""
    totals = np.zeros(len(branching), dtype=np.int64)
    totals[branching] = below_values[0::2] + below_values[1::2]
    return totals


def _evaluate(nodes: _Level, below_truth: np.ndarray) -> np.ndarray:
    truth = np.empty(len(nodes.symbol), dtype=np.uint64)
    branching = nodes.branching
    truth[~branching] = WORLDS[nodes.symbol[~branching] - A]
    left_truth, right_truth = below_truth[0::2], below_truth[1::2]
    truth[branching] = np.where(
        nodes.symbol[branching] == AND, left_truth & right_truth, left_truth | right_truth
    )
    return np.where(nodes.negated, ~truth, truth)


def _write(tokens: np.ndarray, nodes: _Level, starts: np.ndarray, below_sizes: np.ndarray) -> np.ndarray:
    """Write the tokens of `nodes`, not of their children; return the index of each child's first token."""
    branching, negated = nodes.branching, nodes.negated
    body_starts = starts + 2 * negated
    left_sizes, right_sizes = below_sizes[0::2], below_sizes[1::2]
    inner_sizes = np.ones(len(body_starts), dtype=np.int64)
    inner_sizes[branching] = 5 + left_sizes + right_sizes
    tokens[starts[negated]] = OPEN
    tokens[starts[negated] + 1] = NOT
    tokens[(body_starts + inner_sizes)[negated]] = CLOSE
    tokens[body_starts[~branching]] = nodes.symbol[~branching]
    inner_begin = body_starts[branching]
    middle = inner_begin + 1 + left_sizes
    tokens[inner_begin] = tokens[middle] = OPEN
    tokens[middle + 1] = nodes.symbol[branching]
    tokens[middle + 2 + right_sizes] = tokens[middle + 3 + right_sizes] = CLOSE
    return np.stack([inner_begin + 1, middle + 2], axis=1).ravel()


def shortest(num_operators: int) -> int:
    """Return the token count of the shortest formula with `num_operators` operators (mostly negations)."""
    connectives: int = (num_operators + 1) // 3
    return 1 + 6 * connectives + 3 * (num_operators - connectives)


def longest(num_operators: int) -> int:
    """Return the token count of the longest formula with `num_operators` operators (mostly connectives)."""
    connectives = min(num_operators, CONNECTIVES_MAX)
    return 1 + 6 * connectives + 3 * (num_operators - connectives)


OPERATORS_MAX = CONNECTIVES_MAX + (2 * CONNECTIVES_MAX + 1)
"""Greatest number of operators: every possible connective, and every node negated."""
