"""Generate pairs of formulas as rows: first sentence, separator, second sentence, and a relation."""

from functools import lru_cache
from itertools import count

import numpy as np

from trainables.data.progress import report
from trainables.data.ragged import LabelledRows, concatenate, positions, row_offsets
from trainables.generators.formulas import AND, NOT, OPEN, OR, VARIABLES, WORDS, A, Formulas, grow
from trainables.streams import numpy_stream

SEPARATOR = len(WORDS)
RELATIONS = ("#", "=", "<", ">", "^", "|", "v")
"""Labels in order: independent, equivalent, entails, is entailed, negation, alternation, cover."""
BUCKETS = 13
"""Number of groups of pairs by the greater number of operators; the last group has no upper bound."""
SENTENCE_VARIABLES = 4
TRAIN_SHARE_PERCENT = 85
ROUND = 20_000
"""Number of pairs drawn at once; another value would change the data."""
EVERYWHERE = np.uint64(2**64 - 1)


class Pairs(LabelledRows):
    """Pairs, including the separator, with their relations as indices in `RELATIONS`."""

    __slots__ = ()


def relate(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return labels (int16) from truth tables (uint64) that are neither empty nor full."""
    disjoint, covering = (first & second) == 0, (first | second) == EVERYWHERE
    cases = {
        "=": first == second,
        "<": (first & ~second) == 0,
        ">": (second & ~first) == 0,
        "^": disjoint & covering,
        "|": disjoint,
        "v": covering,
    }
    labels = np.select(list(cases.values()), [RELATIONS.index(name) for name in cases])
    return labels.astype(np.int16)


@lru_cache(maxsize=2)
def generate_pairs(num_draws: int, data_seed: int) -> tuple[tuple[Pairs, ...], tuple[Pairs, ...]]:
    """Return the training and the test pairs of each bucket: different pairs among `num_draws` draws."""
    train, test = [], []
    for members in unique_pairs(num_draws, data_seed):
        num_train = len(members) * TRAIN_SHARE_PERCENT // 100
        train.append(members.take(np.arange(num_train)))
        test.append(members.take(np.arange(num_train, len(members))))
    return tuple(train), tuple(test)


@lru_cache(maxsize=2)
def unique_pairs(num_draws: int, data_seed: int) -> tuple[Pairs, ...]:
    """Return the different pairs of each bucket among the first `num_draws` draws, in this order."""
    parts: list[tuple[Pairs, np.ndarray]] = []
    num_wanted = num_draws
    for round_index in count():
        formulas, num_operators = _draw_round(numpy_stream(data_seed, "logical_inference", round_index))
        selected = np.arange(min(num_wanted, len(formulas)))
        parts.append((formulas.take(selected), num_operators[selected]))
        num_wanted -= len(selected)
        report("pairs", num_draws - num_wanted, num_draws)
        if not num_wanted:
            break
    all_pairs = concatenate([part for part, _ in parts])
    bucket = np.minimum(np.concatenate([num_operators for _, num_operators in parts]), BUCKETS - 1)
    # Duplicates have equal operators, so pairs that are unique in total are unique in their bucket.
    unique = np.zeros(len(all_pairs), dtype=bool)
    unique[list({row: index for index, row in reversed([*enumerate(all_pairs.rows())])}.values())] = True
    return tuple(all_pairs.take(np.flatnonzero(unique & (bucket == number))) for number in range(BUCKETS))


def _draw_round(stream: np.random.Generator) -> tuple[Pairs, np.ndarray]:
    """Draw a round of pairs over four of six variables; return contingent ones, and operators per pair."""
    keys = stream.bit_generator.random_raw(ROUND * VARIABLES).reshape(ROUND, VARIABLES)
    variables = np.argsort(keys, axis=1, kind="stable")[:, :SENTENCE_VARIABLES]
    first, second = grow(stream, variables), grow(stream, variables)
    contingent = [(formulas.truth != 0) & (formulas.truth != EVERYWHERE) for formulas in (first, second)]
    accepted_indices = np.flatnonzero(contingent[0] & contingent[1])
    num_operators = np.maximum(first.num_operators, second.num_operators)
    return _join(first, second).take(accepted_indices), num_operators[accepted_indices]


def _join(first: Formulas, second: Formulas) -> Pairs:
    lengths = np.diff(first.offsets), np.diff(second.offsets)
    offsets = row_offsets(lengths[0] + 1 + lengths[1])
    tokens = np.empty(offsets[-1], dtype=np.uint8)
    middle = offsets[:-1] + lengths[0]
    tokens[positions(offsets[:-1], lengths[0])] = first.tokens
    tokens[middle] = SEPARATOR
    tokens[positions(middle + 1, lengths[1])] = second.tokens
    return Pairs(tokens, offsets, relate(first.truth, second.truth))


def has_pattern(pairs: Pairs, pattern: str) -> np.ndarray:
    """Return for each pair (bool) whether a sentence has the pattern A, B or C of Shen et al. 2019.

    A is `( and ( not a ) )`; B is the same with any formula for a; C also admits `or`.
    """
    tokens = pairs.tokens
    next_tokens = [np.append(tokens[shift:], np.zeros(shift, dtype=tokens.dtype)) for shift in (1, 2, 3)]
    matches = (tokens == AND) & (next_tokens[0] == OPEN) & (next_tokens[1] == NOT)
    if pattern == "A":
        matches &= next_tokens[2] == A
    if pattern == "C":
        matches |= (tokens == OR) & (next_tokens[0] == OPEN) & (next_tokens[1] == NOT)
    return np.logical_or.reduceat(matches, pairs.offsets[:-1])
