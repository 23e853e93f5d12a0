"""Looks at a study before all of its seeds have run: what is certain needs no more of them.

After 3, 4, ... seeds every arm that is not decided is looked at. It is decided if all of its primary outcomes
are: if the interval at the level of looks, a twentieth of the study's, leaves out 0 (and the verdict at the
study's level hangs on no single seed), or lies within the margin on both sides, so that no difference larger
than that is certain. An arm that all seeds would still leave undecided in more than 9 of 10 cases is given
up. What is never decided is judged with all seeds at the study's own level, as if nobody had looked
(Haybittle 1971, Peto et al. 1976). An arm that others are compared with runs all seeds.

With k looks the family-wise error is at most 1 + k / 20 times the level, by Bonferroni over the looks; since
they see mostly the same seeds it is less, and giving arms up lowers it. Measured in 2,000 studies each of 8
seeds and 1, 4 and 15 arms (normal, binomial, bimodal, log-normal, t with 3 degrees of freedom, unequal
variances; `tests/orchestrator/statistics/looks.py` prints it): at most 0.054 for looks at a twentieth, and
0.061 for looks at a tenth, which were left. Also left: a final level lowered by what the looks may spend (at
2 standard deviations and 4 arms 0.66 of effects are found instead of 0.72), and giving up below a chance of
0.2 (0.70 instead of 0.74), or by a spread shared among the arms (on published effects 0.96 of verdicts stay,
and 0.997 with each arm's own). Looks make what no test of means withstands worse: where one seed in five
collapses, 0.32 of 1-arm studies without effect report one, and 0.17 without looks. Do not use them where
training is known to collapse now and then.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from orchestrator.statistics.paired import Key, Paired, compare, critical, minus, resolution
from orchestrator.statistics.power import chance
from orchestrator.statistics.verdicts import SEEDS_LEAST, Verdict, more_seeds, verdict
from search_spaces.wording import amount

LOOK_SHARE = 0.05
"""Level of a look, as a share of the study's."""
HOPELESS = 0.1
"""An arm needs no more seeds either if a verdict by all of them is less likely than this."""
FIRST_LOOK = SEEDS_LEAST
"""Seeds before the first look."""

Values = Mapping[Key, Mapping[int, float]]
"""By arm and outcome, seed to what was measured."""


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a study."""

    references: Mapping[str, str]
    """Arm to the arm that it is compared with."""
    outcomes: tuple[str, ...]
    """Primary ones."""
    better: Mapping[str, Literal["max", "min"] | None]
    """By outcome, which values are good."""
    margin: float | None
    """Least difference in the first outcome that matters."""
    level: float
    """Family-wise error."""
    family: int
    """Comparisons: arms times outcomes."""
    seeds: int
    """Independent observations of the whole study: seeds, or repeats of the search."""
    unit: Literal["seed", "repeat"] = "seed"
    """Word for an observation."""


@dataclass(frozen=True, slots=True)
class EarlyVerdict:
    """An arm that needs no more seeds."""

    arm: str
    seeds: int
    """How many had run."""
    level: float
    """Of its look: what its intervals and p values are to be read by."""
    found: Mapping[str, Paired]
    """By outcome."""
    verdicts: Mapping[str, Verdict]


def looks(seeds: int) -> range:
    """After how many of `seeds` seeds there is a look; the end of the study is none."""
    return range(FIRST_LOOK, seeds)


def expected_seeds(effect: float, seeds: int, family: int, level: float) -> float:
    """Seeds that an arm runs on average, of `seeds`, that differs by `effect` standard deviations of a run.

    The chance of each look by the non-central t distribution: that a single seed must not decide, and that
    no spread is taken for much less than the others', make it a little more.
    """
    decided = [chance(effect, number, family, level * LOOK_SHARE) for number in looks(seeds)]
    return seeds - sum(accumulate(decided, max))


def look(
    question: Question,
    values: Values,
    first: Sequence[int],
    undecided: Collection[str],
    failed: Mapping[str, Collection[int]],
) -> dict[str, EarlyVerdict]:
    """Which arms are decided after the seeds `first`; later ones are not looked at.

    `values`: of all arms, those that were decided before included, as far as they ran. `failed`: by arm the
    seeds that failed; one among `first`, of the arm or its reference, withholds its decision.
    """
    seen = {key: {seed: each[seed] for seed in first if seed in each} for key, each in values.items()}
    at_look, at_end = (_compared(question, seen, question.level * share) for share in (LOOK_SHARE, 1.0))
    decided = {}
    for arm in undecided:
        reference = question.references[arm]
        if any(seed in failed.get(each, ()) for each in (arm, reference) for seed in first):
            continue
        if any(
            len(at_look[arm, name].by_seed) < len(first)
            for name in question.outcomes
            if (arm, name) in at_look
        ):
            continue
        found = {name: at_look[arm, name] for name in question.outcomes if (arm, name) in at_look}
        said = {name: _said(question, name, found[name], at_end[arm, name]) for name in found}
        if len(said) < len(question.outcomes) or not all(said.values()):
            continue
        verdicts = {name: each for name, each in said.items() if each is not None}
        decided[arm] = EarlyVerdict(arm, len(first), question.level * LOOK_SHARE, found, verdicts)
    return decided


def _said(question: Question, outcome: str, at_look: Paired, at_end: Paired) -> Verdict | None:
    """The verdict of a look; None where it is not certain."""
    margin = question.margin if outcome == question.outcomes[0] else None
    if at_look.shown:
        # The study's own level says whether one seed makes it: at that of looks, hardly any three remain.
        said = verdict(at_end, margin=margin, better=question.better.get(outcome), unit=question.unit)
        return None if said.withheld else said
    said = verdict(at_look, margin=margin, better=question.better.get(outcome), unit=question.unit)
    if said.kind == "no difference":
        return said
    if at_end.shown or chance_left(at_end, question.seeds, margin) >= HOPELESS:
        return None
    more = more_seeds(at_end, margin)
    unit = question.unit
    needs = f"no number of {unit}s like these" if more is None else f"about {amount(more, f'more {unit}')}"
    return Verdict("undecided", f"undecided: {needs} would decide it, and all {question.seeds} hardly", more)


def chance_left(found: Paired, seeds: int, margin: float | None) -> float:
    """How likely the interval after all `seeds` seeds leaves out 0 or lies within the margin.

    As far as the seeds so far tell: the mean of those to come is drawn from what it may be (Student's t, all
    true means equally likely before), the spread stays. 1 where there is no spread to go by.
    """
    from scipy import stats

    if found.spread is None or found.n < SEEDS_LEAST:
        return 1.0
    half = critical(seeds, found.family, found.level) * found.spread / math.sqrt(seeds)
    moves = found.spread * math.sqrt((seeds - found.n) / (seeds * found.n))
    mean, drawn = abs(found.mean), stats.t(found.n - 1)
    chance = float(drawn.sf((half - mean) / moves) + drawn.cdf((-half - mean) / moves))
    if margin is not None and margin > half:
        room = margin - half
        chance += float(drawn.cdf((room - mean) / moves) - drawn.cdf((-room - mean) / moves))
    return min(1.0, chance)


def _compared(question: Question, values: Values, level: float) -> dict[Key, Paired]:
    differences = {
        (arm, name): {
            seed: minus(value, values[reference, name][seed])
            for seed, value in values[arm, name].items()
            if seed in values[reference, name]
        }
        for arm, reference in question.references.items()
        for name in question.outcomes
        if (arm, name) in values and (reference, name) in values
    }
    steps = {
        name: resolution(value for key, each in values.items() if key[1] == name for value in each.values())
        for name in question.outcomes
    }
    return compare(differences, family=question.family, level=level, resolutions=steps)
