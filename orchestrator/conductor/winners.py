"""Rank the assignments of a search for confirmation."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orchestrator.identity import canonical
from orchestrator.spec.section import Objective
from search_spaces.dimensions import Assignment


@dataclass(frozen=True, slots=True)
class Candidate:
    """A finished search trial."""

    number: int
    assignment: Assignment
    objective_values: tuple[float, ...]
    """Value of every objective by its scope."""


def rank_candidates(candidates: Iterable[Candidate], objectives: Sequence[Objective]) -> list[Candidate]:
    """Return the first candidate of every distinct assignment, best first.

    With one objective, candidates are ranked by its value. With several, the Pareto front comes first, sorted
    by the first objective, then the front of the remaining candidates, and so on. Candidates with equal
    values keep the order in which they were asked for.
    """
    goals = [1.0 if objective.goal == "max" else -1.0 for objective in objectives]

    def score(candidate: Candidate) -> tuple[float, ...]:
        return tuple(goal * value for goal, value in zip(goals, candidate.objective_values, strict=True))

    ordered = sorted(candidates, key=lambda candidate: candidate.number)
    scored = [(score(candidate), candidate) for candidate in ordered]
    candidates_left = _first_of_each_assignment(sorted(scored, key=lambda pair: pair[0][0], reverse=True))
    if len(objectives) == 1:
        return [candidate for _, candidate in candidates_left]
    order: list[Candidate] = []
    while candidates_left:
        scores = [score for score, _ in candidates_left]
        in_front = [not any(_dominates(other_score, score) for other_score in scores) for score in scores]
        order += [
            candidate
            for (_, candidate), is_in_front in zip(candidates_left, in_front, strict=True)
            if is_in_front
        ]
        candidates_left = [
            pair for pair, is_in_front in zip(candidates_left, in_front, strict=True) if not is_in_front
        ]
    return order


ScoredCandidate = tuple[tuple[float, ...], Candidate]


def _first_of_each_assignment(scored: Iterable[ScoredCandidate]) -> list[ScoredCandidate]:
    first_scored: dict[str, ScoredCandidate] = {}
    for pair in scored:
        first_scored.setdefault(canonical(dict(pair[1].assignment)), pair)
    return list(first_scored.values())


def _dominates(first: tuple[float, ...], second: tuple[float, ...]) -> bool:
    """Return whether `first` is at least as large as `second` in every objective, and larger in some."""
    return first != second and all(a >= b for a, b in zip(first, second, strict=True))
