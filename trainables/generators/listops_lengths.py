"""Draw ListOps trees of a given length without rejection.

The process generates a tree of 900 to 1000 tokens once in tens of thousands of draws. Instead of drawing
until one occurs, the distribution of lengths is computed, a length is drawn from the allowed ones, and a tree
of that length is drawn (the recursive method of Flajolet, Zimmermann and Van Cutsem 1994, "A calculus for the
random generation of labelled combinatorial structures"). The distribution equals that of rejection.

Only separate additions and multiplications of float64 are used, in a fixed order, so that tables and draws
are the same on every machine.
"""

import numpy as np

from trainables.data.draws import uniform
from trainables.data.ragged import row_offsets
from trainables.generators.listops_trees import (
    Law,
    Level,
    Trees,
    level,
    render,
)


class LengthLaw:
    """Distribution of the lengths of the trees of a `Law`, up to `length_max` tokens, with draws from it."""

    def __init__(self, law: Law, length_max: int) -> None:
        share = law.operator_probability / (law.arguments_max - 1)
        digit = np.zeros(length_max + 1)
        digit[1] = 1.0
        tree = digit
        sums: list[list[np.ndarray]] = []
        for _ in range(law.depth_max - 1):
            sums.append(_sum_distributions(tree, law.arguments_max))
            tree = digit * (1 - law.operator_probability)
            for total in sums[-1][2:]:
                tree[2:] += share * total[:-2]
        self.tree = tree
        """`tree[n]`: probability that a tree has n tokens."""
        self.sums = sums[::-1]
        """`sums[d][k][n]`: probability that k subtrees of a node d levels below the root have n tokens."""

    def draw(self, stream: np.random.Generator, n: int, shortest: int, longest: int) -> Trees:
        """Return `n` independent trees of `shortest` to `longest` tokens (inclusive)."""
        allowed = self.tree[shortest : longest + 1]
        assert allowed.any(), f"the law must make trees of {shortest} to {longest} tokens"
        lengths = shortest + _draw_indices(np.cumsum(allowed), uniform(stream, n))
        levels: list[Level] = []
        for sums in [*self.sums, None]:
            if sums is None or not (lengths > 1).any():
                levels.append(level(stream, np.zeros(len(lengths), dtype=np.int64)))
                break
            arity = _draw_arities(stream, sums, lengths)
            levels.append(level(stream, arity))
            inner = arity > 0
            lengths = _split_lengths(stream, sums, lengths[inner] - 2, arity[inner])
        return render(levels)


def _sum_distributions(tree: np.ndarray, arguments_max: int) -> list[np.ndarray]:
    """Return distributions of the total length of 0, 1, .. `arguments_max` subtrees, given that of one."""
    zeros = np.zeros_like(tree)
    zeros[0] = 1.0
    totals = [zeros, tree]
    for _ in range(arguments_max - 1):
        total = np.zeros_like(tree)
        for length in np.flatnonzero(tree).tolist():
            total[length:] += tree[length] * totals[-1][: len(total) - length]
        totals.append(total)
    return totals


def _draw_indices(cumulative: np.ndarray, uniform_numbers: np.ndarray) -> np.ndarray:
    """Return indices drawn in proportion to the weights whose running sum is `cumulative`, by inversion."""
    # Rounding must not turn a number just below one into the total, which is after the last weight.
    below_total = np.nextafter(cumulative[-1], 0.0)
    indices: np.ndarray = np.searchsorted(
        cumulative, np.minimum(uniform_numbers * cumulative[-1], below_total), side="right"
    )
    return indices


def _draw_arities(stream: np.random.Generator, sums: list[np.ndarray], lengths: np.ndarray) -> np.ndarray:
    """Draw the number of arguments of each node, given the length of its subtree; 0 for a digit."""
    arity = np.zeros(len(lengths), dtype=np.int64)
    inner = np.flatnonzero(lengths > 1)
    weights = np.stack([total[lengths[inner] - 2] for total in sums[2:]])
    cumulative = np.cumsum(weights, axis=0)
    threshold = np.minimum(uniform(stream, len(inner)) * cumulative[-1], np.nextafter(cumulative[-1], 0.0))
    arity[inner] = 2 + (cumulative <= threshold).sum(axis=0)
    return arity


def _split_lengths(
    stream: np.random.Generator, sums: list[np.ndarray], remaining: np.ndarray, arity: np.ndarray
) -> np.ndarray:
    """Draw the lengths of all children: each node has `arity` children with `remaining` tokens in total."""
    first_children = row_offsets(arity)[:-1]
    lengths = np.empty(int(arity.sum()), dtype=np.int64)
    remaining = remaining.copy()
    for num_split in range(int(arity.max())):
        is_last = arity == num_split + 1
        lengths[first_children[is_last] + num_split] = remaining[is_last]
        unsplit = np.flatnonzero(arity > num_split + 1)
        share = _draw_first_lengths(stream, sums, arity[unsplit] - num_split, remaining[unsplit])
        lengths[first_children[unsplit] + num_split] = share
        remaining[unsplit] -= share
    return lengths


def _draw_first_lengths(
    stream: np.random.Generator, sums: list[np.ndarray], count: np.ndarray, remaining: np.ndarray
) -> np.ndarray:
    """Draw the length of the first of `count` subtrees that have `remaining` tokens in total."""
    uniform_numbers = uniform(stream, len(remaining))
    lengths = np.empty(len(remaining), dtype=np.int64)
    order = np.lexsort((remaining, count))
    changes = np.flatnonzero(np.diff(count[order]) | np.diff(remaining[order])) + 1
    for group in np.split(order, changes) if len(order) else []:
        num_others, total = int(count[group[0]]) - 1, int(remaining[group[0]])
        weights = sums[1][: total + 1] * sums[num_others][total::-1]
        lengths[group] = _draw_indices(np.cumsum(weights), uniform_numbers[group])
    return lengths
