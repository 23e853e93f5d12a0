"""Generate ListOps trees of given nesting and dependency depth, by wrapping trees until they are deep enough.

Dependency depth and the source are described in `tasks.listops_dependency`.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import count

import numpy as np

from trainables.data import ragged
from trainables.data.draws import draw_integers, find_new, uniform
from trainables.data.ragged import positions, row_offsets
from trainables.generators import listops_trees as trees
from trainables.generators.listops_trees import CLOSE, MIN, OPERATORS, Law, Level, Trees, child_starts, level
from trainables.streams import numpy_stream

ARGUMENTS_MAX = 5
OPERATOR_PROBABILITY = 0.3
"""Probability that a node is an operator."""
COUNTED_MAX = 50
"""Greatest token count of a tree, as published, which includes one extra token per operator."""
COUNTED_OPERATOR = 3
ROUND = 30_000
"""Number of trees drawn at once; another value would change the data."""


@dataclass(frozen=True, slots=True)
class DepthLaw:
    """Bounds for both the levels (including that of digits) and the dependency depths of trees."""

    shallowest: int
    deepest: int

    def levels(self) -> Law:
        """Return the distribution of trees before they become arguments of new operators."""
        return Law(self.deepest, ARGUMENTS_MAX, OPERATOR_PROBABILITY)

    def examples_per_depth(self, count: int) -> np.ndarray:
        """Return the number of trees of each dependency depth (index), out of `count` trees."""
        share, remainder = divmod(count, self.deepest - self.shallowest + 1)
        depths = np.arange(self.deepest + 1)
        return np.where(depths < self.shallowest, 0, share + (depths < self.shallowest + remainder))


@dataclass(frozen=True, slots=True)
class MeasuredTrees:
    """Trees and their depths."""

    trees: Trees
    depth: np.ndarray
    """int64: number of levels, including the level of digits."""
    dependency: np.ndarray
    """int64: dependency depth."""

    def __len__(self) -> int:
        return len(self.trees)

    def take(self, indices: np.ndarray) -> "MeasuredTrees":
        """Return the trees at `indices`, in that order."""
        return MeasuredTrees(self.trees.take(indices), self.depth[indices], self.dependency[indices])

    def counted_tokens(self) -> np.ndarray:
        """Return the published token counts."""
        operators = np.add.reduceat(self.trees.tokens == CLOSE, self.trees.offsets[:-1], dtype=np.int64)
        return np.asarray(self.trees.lengths + operators)


def concatenate(parts: list[MeasuredTrees]) -> MeasuredTrees:
    """Return all trees of `parts`, in order."""
    return MeasuredTrees(
        ragged.concatenate([part.trees for part in parts]),
        np.concatenate([part.depth for part in parts]),
        np.concatenate([part.dependency for part in parts]),
    )


def draw_balanced(law: DepthLaw, num_wanted: int, data_seed: int, name: str, seen: set[Hashable]) -> Trees:
    """Return `num_wanted` different trees outside `seen`, in equal numbers for each dependency depth."""
    num_wanted_by_depth = law.examples_per_depth(num_wanted)
    parts: list[Trees] = []
    for round_index in count():
        candidates = draw(numpy_stream(data_seed, "listops_dependency", name, round_index), law, ROUND)
        candidates = candidates.take(np.flatnonzero(num_wanted_by_depth[candidates.dependency]))
        unseen = np.asarray(find_new(candidates.trees.rows(), seen, len(candidates)), dtype=np.int64)
        by_depth = [
            unseen[candidates.dependency[unseen] == depth][:num_depth]
            for depth, num_depth in enumerate(num_wanted_by_depth)
        ]
        parts.append(candidates.trees.take(np.sort(np.concatenate(by_depth))))
        num_wanted_by_depth = num_wanted_by_depth - [len(indices) for indices in by_depth]
        if not num_wanted_by_depth.any():
            break
    return ragged.concatenate(parts)


def draw(stream: np.random.Generator, law: DepthLaw, n: int) -> MeasuredTrees:
    """Draw `n` independent trees; return the trees within the greatest length."""
    forest, _ = _sprout(stream, law.levels(), np.arange(n), np.zeros(n, dtype=np.int64))
    unfinished, finished = measure(forest), []
    while len(unfinished):
        is_deep_enough = unfinished.depth >= law.shallowest
        finished.append(unfinished.take(np.flatnonzero(is_deep_enough)))
        unfinished = unfinished.take(np.flatnonzero(~is_deep_enough))
        if len(unfinished):
            unfinished = wrap(stream, unfinished, Law(law.deepest - 1, ARGUMENTS_MAX, OPERATOR_PROBABILITY))
    return concatenate(finished)


def wrap(stream: np.random.Generator, inner: MeasuredTrees, law: Law) -> MeasuredTrees:
    """Make each tree an argument (not the last) of a new operator; return the trees that are short enough."""
    num_others = 2 + draw_integers(stream, len(inner), ARGUMENTS_MAX - 2)
    place = (uniform(stream, len(inner)) * num_others).astype(np.int64)
    operators = (MIN + draw_integers(stream, len(inner), len(OPERATORS))).astype(np.uint8)
    owner = np.repeat(np.arange(len(inner)), num_others)
    forest, is_short = _sprout(stream, law, owner, inner.counted_tokens() + COUNTED_OPERATOR)
    inner, root = inner.take(is_short), Level(operators[is_short], num_others[is_short] + 1)
    is_inner = np.zeros(int(root.arity.sum()), dtype=bool)
    is_inner[row_offsets(root.arity)[:-1] + place[is_short]] = True
    order = np.empty(len(is_inner), dtype=np.int64)
    order[is_inner] = np.arange(len(inner))
    order[~is_inner] = len(inner) + np.arange(len(is_inner) - len(inner))
    return _join(root, concatenate([inner, measure(forest)]).take(order))


def measure(forest: list[Level]) -> MeasuredTrees:
    """Return the trees whose roots are the first level, evaluated and written out."""
    values = dependency = depth = np.zeros(0, dtype=np.int64)
    for nodes in reversed(forest):
        dependency = _dependency_depth(nodes, values, dependency)
        depth = _depth(nodes, depth)
        values = trees.evaluate(nodes, values)
    return MeasuredTrees(trees.render(forest), depth, dependency)


def _sprout(
    stream: np.random.Generator, law: Law, owner: np.ndarray, num_tokens: np.ndarray
) -> tuple[list[Level], np.ndarray]:
    """Draw a tree per entry of `owner`; return the trees of owners that stay short enough, and these owners.

    The trees of an owner follow `num_tokens[owner]` tokens. Trees that become too long are discarded at once,
    which gives the same distribution as rejecting the complete trees.
    """
    num_tokens = num_tokens + np.bincount(owner, minlength=len(num_tokens))
    levels: list[Level] = []
    owners: list[np.ndarray] = []
    for depth in range(1, law.depth_max + 1):
        owner = owner[num_tokens[owner] <= COUNTED_MAX]
        arity = 2 + draw_integers(stream, len(owner), law.arguments_max - 1)
        arity[uniform(stream, len(owner)) >= law.operator_probability] = 0
        if depth == law.depth_max:
            arity[:] = 0
        used_tokens = np.where(arity > 0, arity + COUNTED_OPERATOR - 1, 0)
        num_tokens += np.bincount(owner, used_tokens, minlength=len(num_tokens)).astype(np.int64)
        levels.append(level(stream, arity))
        owners.append(owner)
        owner = np.repeat(owner, arity)
    is_short = num_tokens <= COUNTED_MAX
    masks = [is_short[node_owners] for node_owners in owners]
    forest = [
        Level(nodes.symbols[is_kept], nodes.arity[is_kept])
        for nodes, is_kept in zip(levels, masks, strict=True)
        if is_kept.any()
    ]
    return forest, np.flatnonzero(is_short)


def _join(root: Level, arguments: MeasuredTrees) -> MeasuredTrees:
    """Return one tree for each operator in `root`, which takes the next `arguments` in order."""
    sizes, values = arguments.trees.lengths, arguments.trees.labels.astype(np.int64)
    offsets = row_offsets(np.diff(row_offsets(sizes)[row_offsets(root.arity)]) + 2)
    tokens = np.empty(offsets[-1], dtype=np.uint8)
    tokens[offsets[:-1]] = root.symbols
    tokens[offsets[1:] - 1] = CLOSE
    tokens[positions(child_starts(root.arity, offsets[:-1], sizes), sizes)] = arguments.trees.tokens
    return MeasuredTrees(
        Trees(tokens, offsets, trees.evaluate(root, values).astype(np.int16)),
        _depth(root, arguments.depth),
        _dependency_depth(root, values, arguments.dependency),
    )


def _depth(nodes: Level, below_depth: np.ndarray) -> np.ndarray:
    """Return the number of levels of each node's subtree, given that of its arguments."""
    depth = np.ones(len(nodes.arity), dtype=np.int64)
    inner = nodes.arity > 0
    if inner.any():
        depth[inner] += np.maximum.reduceat(below_depth, row_offsets(nodes.arity)[:-1][inner])
    return depth


def _dependency_depth(nodes: Level, below_values: np.ndarray, below_dependency: np.ndarray) -> np.ndarray:
    """Return the dependency depth of each node's subtree, given values and depths of its arguments."""
    dependencies = np.ones(len(nodes.arity), dtype=np.int64)
    first_children = row_offsets(nodes.arity)[:-1]
    for arity in np.unique(nodes.arity[nodes.arity > 0]).tolist():
        with_arity = np.flatnonzero(nodes.arity == arity)
        children = first_children[with_arity, None] + np.arange(arity)
        values, depths = below_values[children], below_dependency[children]
        by_value = np.take_along_axis(depths, np.argsort(values, axis=1, kind="stable"), axis=1)
        greatest = depths[np.arange(len(with_arity)), values.argmax(axis=1)]
        median = np.maximum(by_value[:, (arity - 1) // 2], by_value[:, arity // 2])
        outcomes = np.stack([by_value[:, 0], greatest, median, depths.max(axis=1)])
        dependencies[with_arity] += outcomes[nodes.symbols[with_arity] - MIN, np.arange(len(with_arity))]
    return dependencies
