"""What a reader of a report must know: what its numbers are, and what may be claimed of them."""

from collections import Counter
from collections.abc import Sequence
from math import inf, isfinite
from statistics import stdev

from orchestrator.plan.answer import SEEN
from orchestrator.plan.format import value_words
from orchestrator.plan.planned_trials import SEARCH
from orchestrator.report.arm_changes import ArmChanges
from orchestrator.report.extensions import extended_after_results
from orchestrator.report.searches import NO_CLAIM
from orchestrator.report.types import PriorWork, Report, ended_word, number_words, worded
from orchestrator.statistics.sequential import LOOK_SHARE, looks
from orchestrator.statistics.verdicts import SEEDS_LEAST, unseen
from orchestrator.trials import OutcomeKind
from search_spaces.dimensions import same
from search_spaces.wording import amount
from trainables.metrics import Metric

FAILED = frozenset(each.value for each in OutcomeKind if each.failed)
BySeed = tuple[tuple[int, float], ...]
INTERVALS = (
    "Intervals of means are two-sided 95% Student t intervals over seeds, each for itself, cut off where "
    "the quantity cannot be, and left out of one seed alone and where all seeds gave the same, which tells "
    "nothing of chance."
)
NO_INTERVALS = (
    "No mean has an interval: one seed alone, and seeds that all gave the same, tell nothing of chance."
)
ONE_SEED = "Every value is of one seed: it has no interval and no p, for one seed tells nothing of chance."
ASSIGNMENTS = " Where several assignments of an arm are confirmed, their mean is the value of a seed."
CLAIMS = (
    "A claim rests on {outcomes} alone. Differences are paired by seed; their intervals and p values come "
    "from one procedure, {procedure}, and agree: p is at most {level} exactly when the interval leaves "
    "out 0. With probability {sure:g} {hold}{but}."
)
EXTENDED = ", but for what was known when seeds or arms were added"
"""Of what holds with that probability, where additions rest on results that had been seen."""
NOTHING_CLAIMED = (
    "A claim would rest on {outcomes} alone, by differences paired by seed. None of these has an interval or "
    "a p: nothing is claimed of any arm."
)
NO_OUTCOME = (
    "Nothing is claimed of any arm: the confirm trials read no split but valid, by which the search has "
    "chosen. Name test splits in confirm.splits, or an outcome in answer.metric."
)
RAISED = (
    "The seeds of {arms} lie closer together than chance explains, or than the steps of the quantity "
    "allow: their intervals are made of half the median spread of all arms, or of that of the steps."
)
LOOKS = (
    "Arms were looked at after each round of seeds. One that was decided then has the interval and p of its "
    "look, at level {level:g}, a twentieth of the study's; others are judged with all seeds at level "
    "{full:g}. An arm was also given up where all seeds together would hardly have decided it. Estimates of "
    "arms that stopped early lean away from 0, because chance that agrees with a difference makes a look "
    "decide it."
)
VERDICTS = (
    "A verdict is better or worse where the interval leaves out 0{margin}; it is withheld where a seed "
    "failed, below 3 seeds, and where without one single seed the others would not show it. Else it is "
    "undecided; the number of further seeds takes those to come to be like these."
)
EXPLORATORY = (
    "All other differences are exploratory{many}. The split valid chose what was kept, so that values on it "
    "are too good."
)
MANY = ": in so many of them some intervals leave out 0 by chance"
FACTORIAL = (
    "A main effect is how much larger the outcome is with a component than without it, averaged over all "
    "combinations of the others; an interaction of two is half of how much more one does where the other is "
    "there than where it is not, of more components the same of those of fewer. {chance} Every one needs all "
    "arms: a seed that some arm lacks has no value, and then there is no p."
)
CONTRASTS = (
    "Their intervals and p hold together for {contrasts}, a family of their own beside that of the verdicts: "
    "they are exploratory."
)
NO_CONTRASTS = "They are exploratory, and none has an interval or a p."
UNMET = (
    "Published, and without a reading of ours to stand beside, since none was measured or every seed "
    "failed: {values}"
)
FAILURES = (
    "A confirm trial that failed (diverged, out of memory, timed out, crashed) has no value: means are of "
    "the seeds that finished, there is no p, and the verdict of the arm is undecided."
)
UNMEASURED = (
    "A seed that finished without a primary outcome counts like one that failed: that it has no value may "
    "depend on what the value would have been: {arms}."
)
SPREAD = (
    "Over {seeds} seeds {metric} of {arm} has a standard deviation of {spread:.2g}: with answer.spread: "
    "{spread:.2g} the next plan says what its seeds can show."
)
COLLAPSE = (
    "No test of means withstands seeds that collapse now and then: of a system that does so in one run of "
    "ten, {seeds} {show} no collapse in {tenth:.0%} of cases, in one of five in {fifth:.0%}."
)
ONE_BY_ONE = " Look at the seeds one by one."
COLLAPSE_EARLY = " Where an arm ended after {seeds}, as here, it is {tenth:.0%} and {fifth:.0%}."
ALIKE = (
    "{arms} measured the very same {metrics} in each of {seeds}, which differ: what tells these arms apart "
    "changes at most what they cost, or too little was learnt or measured for it to show."
)
ONE_SYSTEM = (
    "{arm} and {reference} were confirmed with the very same settings, for the search chose what {arm} sets: "
    "{sets}. One system was run twice, and nothing that is said of their difference is an effect of {arm}."
)
FRONT = (
    "Several points of the front of each arm were confirmed, and are kept apart: verdicts, differences and "
    "means are of point 1, the best in the first objective, whatever it pays in the others."
)
SEARCHED_ONCE = (
    "Each arm was searched once: what is compared are the assignments that these searches found, and seeds "
    "repeat the training with them alone. How far a search with another seed would have led is in no "
    "interval and no p."
)
SEARCH_FAILED = (
    "Search trials that failed left less to choose from, so that an arm may be tuned less well than others: "
    "{arms}."
)
OF_FRONT = (
    "The search had {objectives} for objectives. Of the front of each arm the point that is best in {first} "
    "was confirmed, whatever it pays in {others}: other points may pay less."
)
BEYOND = (
    "{arms}: {metric} is {values}, but declared to be {range}. Either what measures it or its declaration "
    "is wrong; claims of it are made as if nothing were."
)


UNITS_APART = 50
"""Least factor between all values of two arms that makes one ask whether they have one unit."""
UNITS = (
    "{arm} and {other} are at least {times} times apart in {metric} in all seeds: make sure that both report "
    "it in one unit, as a share or in percent, say. A declared range would tell."
)
ONE_VALUE = (
    "{arms}: every seed measured one and the same {metric}, and every seed of what it is compared with one "
    "too, so that no chance shows in it. The verdict holds only if seeds change what is trained: if they do "
    "not, each arm is one run."
)
NO_ROOM = "{arms} are within {margin:g} of {bound:g} in {metric}, {what}, whatever these arms change."
AT_BOUND = "the {which} value there can be: no difference larger than that could show there"
AT_FLOOR = "what needs no learning: arms that have learnt nothing do not differ"
TWINS = (
    "{seeds} measured no more than {runs} different things, each at least twice and the very same in all "
    "arms: they may be fewer runs than their number says, and then intervals are too narrow and p too small."
)


def notices(report: Report, *, of_verdicts: bool = False) -> list[str]:
    """What a reader must know before any number, one sentence or a few each, as plain text.

    `of_verdicts`: what is told beside verdicts, each of which says itself whether trials are left.
    """
    found = [report.code_versions] if report.code_versions else []
    found += [_unfinished(report)] if report.left and not of_verdicts else []
    found += [SEEN.format(splits=" and ".join(report.selected_on))] if report.selected_on else []
    found += [FRONT] if report.points else []
    found += [
        *_one_system(report),
        *_alike(report),
        *_twins(report),
        *_one_value(report),
        *_no_room(report),
        *_units(report),
    ]
    return [*found, *([_unread(report)] if report.unread else [])]


def _one_system(report: Report) -> list[str]:
    """Arms that the searches made what they are compared with."""
    measured = {cell.arm for cell in report.cells}
    return [
        ONE_SYSTEM.format(arm=each.arm, reference=each.reference, sets=", ".join(said))
        for each in report.changes
        if {each.arm, each.reference} <= measured and (report.assignments == 1 or report.points)
        if (said := _run_as_reference(report, each))
    ]


def _run_as_reference(report: Report, arm: ArmChanges) -> list[str]:
    """The searched fields of `arm` with their values if all are those of its reference and nothing else is
    changed; else none."""
    reference = next((each for each in report.changes if each.arm == arm.reference), None)
    if (
        reference is None
        or arm.changes
        or any(each.searched and not each.chosen for each in (arm, reference))
    ):
        return []
    own, theirs = ({**each.dropped, **each.chosen} for each in (arm, reference))
    if any(path not in theirs or not same(value, theirs[path]) for path, value in own.items()):
        return []
    return [f"{path} = {value_words(value)}" for path, value in own.items()]


def _alike(report: Report) -> list[str]:
    """Arms that no primary outcome tells apart in any seed, where seeds are told apart."""
    groups: dict[tuple[tuple[str, BySeed], ...], list[str]] = {}
    one = {each.arm for each in report.changes if _run_as_reference(report, each)}
    for arm in (each for each in report.arms if each not in one):
        cells = [cell for metric in report.outcomes if (cell := report.cell(arm, metric))]
        values = tuple((cell.metric, cell.by_seed) for cell in cells)
        if any(len(by_seed) >= SEEDS_LEAST and len({*dict(by_seed).values()}) > 1 for _, by_seed in values):
            groups.setdefault(values, []).append(arm)
    return [
        ALIKE.format(
            arms=f"{', '.join(arms[:-1])} and {arms[-1]}",
            metrics=" and ".join(metric for metric, _ in values),
            seeds=amount(len(values[0][1]), "seed"),
        )
        for values, arms in groups.items()
        if len(arms) > 1
    ]


def _twins(report: Report) -> list[str]:
    """Seeds every one of which has another that measured the very same in all arms, as of code that takes a
    seed modulo something. Where all of them did, nothing is claimed."""
    by_seed: dict[int, list[tuple[str, str, float]]] = {}
    for cell in report.cells:
        for seed, value in cell.by_seed:
            by_seed.setdefault(seed, []).append((cell.arm, cell.metric, value))
    counts = Counter(map(tuple, by_seed.values()))
    if len(counts) < 2 or min(counts.values()) < 2:
        return []
    return [TWINS.format(seeds=amount(len(by_seed), "seed"), runs=len(counts))]


def _one_value(report: Report) -> list[str]:
    """Claims that rest on seeds of which none differs, in an arm and in what it is compared with."""
    found: dict[str, list[str]] = {}
    for each in report.verdicts:
        cells = [report.cell(arm, each.metric) for arm in (each.arm, each.reference)]
        alike = all(cell and len({*dict(cell.by_seed).values()}) == 1 for cell in cells)
        if alike and each.kind != "undecided":
            found.setdefault(each.metric, []).append(each.arm)
    return [ONE_VALUE.format(arms=", ".join(arms), metric=metric) for metric, arms in found.items()]


def _no_room(report: Report) -> list[str]:
    """Claims of no difference between arms that all lie where none could show: at an end of what can be, or
    at what needs no learning."""
    margin = report.answer.margin if report.answer is not None else None
    found: dict[tuple[str, float, str], list[str]] = {}
    for each in report.verdicts:
        cells = [report.cell(arm, each.metric) for arm in (each.reference, each.arm)]
        if margin is None or each.kind != "no difference" or not all(cells):
            continue
        known = report.quantity(each.metric)
        bounds = {
            AT_BOUND.format(which="greatest"): known.high,
            AT_BOUND.format(which="least"): known.low,
            AT_FLOOR: report.floors.get(each.metric),
        }
        for what, bound in bounds.items():
            if bound is not None and all(cell and abs(cell.estimate.mean - bound) < margin for cell in cells):
                arms = found.setdefault((each.metric, bound, what), [])
                arms += [arm for arm in (each.reference, each.arm) if arm not in arms]
                break
    return [
        NO_ROOM.format(
            arms=f"{', '.join(arms[:-1])} and {arms[-1]}",
            margin=margin,
            bound=bound,
            metric=metric,
            what=what,
        )
        for (metric, bound, what), arms in found.items()
    ]


def _units(report: Report) -> list[str]:
    """Arms that may report an outcome in another unit than the arm that they are compared with."""
    found = []
    for verdict in report.verdicts:
        known = report.quantity(verdict.metric)
        cells = [report.cell(arm, verdict.metric) for arm in (verdict.arm, verdict.reference)]
        sizes = [sorted(abs(value) for _, value in cell.by_seed) for cell in cells if cell and cell.by_seed]
        if len(sizes) < len(cells) or known.low is not None or known.high is not None:
            continue
        small, large = sorted(sizes)
        if 0 < small[-1] * UNITS_APART <= large[0]:
            times = f"{large[0] / small[-1]:.2g}"
            found.append(
                UNITS.format(arm=verdict.arm, other=verdict.reference, metric=verdict.metric, times=times)
            )
    return found


def _unfinished(report: Report) -> str:
    have = "has" if report.left == 1 else "have"
    message = f"{amount(report.left, 'trial')} {have} not ended: every number is of those that have."
    return f"{message} Nothing more begins: {report.spent}." if report.spent else message


def in_words(report: Report) -> list[str]:
    """What the seeds decide, one line a verdict, and which arms they leave open in which primary outcome."""
    lines = [f"decided: {each.line}" for each in report.verdicts if each.kind != "undecided"]
    for outcome in report.outcomes:
        verdicts = [each for each in report.verdicts if each.metric == outcome]
        left = [each.arm for each in verdicts if each.kind == "undecided"]
        if left:
            which = "every arm" if 1 < len(left) == len(verdicts) else ", ".join(left)
            lines.append(f"undecided: {which} in {outcome}, which does not mean that there is no difference")
    return lines


def _unread(report: Report) -> str:
    return (
        f"No confirm trial measured anything on {', '.join(report.unread)} by its last report, which "
        "must have <split>/<quantity> of every split that the training code is given, e.g. "
        f"{report.unread[0]}/accuracy."
    )


def notes(report: Report) -> list[str]:
    """What a reader of the numbers must know, one sentence or a few each, as plain text."""
    intervals = worded(report.estimates, intervals=INTERVALS, means=NO_INTERVALS, one=ONE_SEED)
    found = [*_beyond(report), intervals + ASSIGNMENTS, *_claims(report), FAILURES]
    lacking = [each.arm for each in report.tallies if ended_word(each.failures) == "measured"]
    found += [UNMEASURED.format(arms=", ".join(lacking))] if lacking else []
    found += [each.note for each in report.quantities if each.note]
    if report.factorial:
        contrasts = CONTRASTS.format(contrasts=amount(report.factorial[0].family, "contrast"))
        known = (each.estimate for each in report.factorial if each.estimate is not None)
        chance = worded(known, intervals=contrasts, means=NO_CONTRASTS, one=NO_CONTRASTS)
        found.append(FACTORIAL.format(chance=chance))
    if report.searched:
        found.append(NO_CLAIM)
    if report.confirm_seeds and any(SEARCH in each.outcomes for each in report.tallies):
        found += [SEARCHED_ONCE, *_search_failed(report)]
    if len(report.objectives) > 1 and report.confirm_seeds and not report.points:
        first, *others = report.objectives
        found.append(
            OF_FRONT.format(
                objectives=" and ".join(report.objectives), first=first, others=" and ".join(others)
            )
        )
    if report.answer is not None and any(each.looked for each in report.verdicts):
        found.append(LOOKS.format(level=report.answer.level * LOOK_SHARE, full=report.answer.level))
    found += report.extensions
    found += [f"Ended early: {each}." for each in report.skipped]
    sources = dict.fromkeys((each.arm, each.published_source) for each in (*report.cells, *report.posthoc))
    sources |= dict.fromkeys(
        (each.system, each.source) for each in report.prior_work if each.metric in report.metrics
    )
    found += [f"Published values of {arm}: {source}" for arm, source in sources if source]
    if report.unmet_published:
        found.append(_unmet(report.unmet_published))
    if report.power:
        found.append(report.power)
    return [*found, *_spread(report)]


def _search_failed(report: Report) -> list[str]:
    """Arms that were chosen from fewer trials than they might have been."""
    told = []
    for each in report.tallies:
        ended = each.outcomes.get(SEARCH, {})
        if failed := sum(count for kind, count in ended.items() if kind in FAILED):
            told.append(f"{each.arm}, {amount(failed, 'trial')} of {sum(ended.values())}")
    return [SEARCH_FAILED.format(arms="; ".join(told))] if told else []


def _unmet(rows: Sequence[PriorWork]) -> str:
    """Published values without a reading of ours, one part for each system and source."""
    metrics: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        words = (
            f"{row.metric} {'' if row.statistic == 'mean' else f'{row.statistic} '}{number_words(row.value)}"
        )
        metrics.setdefault((row.system, row.source), []).append(words)
    parts = [
        f"{system}, {', '.join(values)}" + (f" ({source})" if source else "")
        for (system, source), values in metrics.items()
    ]
    return UNMET.format(values="; ".join(parts))


def _beyond(report: Report) -> list[str]:
    """Quantities that were measured where they are declared never to be."""
    found: dict[str, dict[str, list[float]]] = {}
    for cell in report.cells:
        known = report.quantity(cell.metric)
        least, most = (
            -inf if known.low is None else known.low,
            inf if known.high is None else known.high,
        )
        # A mean of many numbers may lie a rounding beyond.
        slack = 1e-6 * max(abs(end) for end in (least, most, 1.0) if isfinite(end))
        outside = [value for _, value in cell.by_seed if not least - slack <= value <= most + slack]
        if outside:
            found.setdefault(cell.metric, {})[cell.arm] = outside
    return [
        BEYOND.format(
            arms=", ".join(arms),
            metric=metric,
            values=_span([value for values in arms.values() for value in values]),
            range=_range(report.quantity(metric)),
        )
        for metric, arms in found.items()
    ]


def _span(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def _range(known: Metric) -> str:
    if known.low is None:
        return f"at most {known.high:g}"
    return f"at least {known.low:g}" if known.high is None else f"from {known.low:g} to {known.high:g}"


def _spread(report: Report) -> list[str]:
    """What the next sweep can be planned with."""
    cell = report.cell(report.arms[0], report.outcomes[0]) if report.outcomes else None
    values = [value for _, value in cell.by_seed] if cell else []
    if len(values) < SEEDS_LEAST or not (spread := stdev(values)):
        return []
    return [SPREAD.format(arm=report.arms[0], metric=report.outcomes[0], seeds=len(values), spread=spread)]


def _claims(report: Report) -> list[str]:
    """What may be claimed of these numbers, and what may not."""
    answer = report.answer
    if answer is None or not answer.family:
        return []
    if not answer.outcomes:
        return [NO_OUTCOME]
    margin = (
        f", and no difference larger than {answer.margin:g} where it lies within that on both sides"
        if answer.margin is not None
        else ""
    )
    outcomes = ", ".join(answer.outcomes)
    several = answer.family > 1
    family = f" corrected by Bonferroni for all {amount(answer.family, 'comparison')}"
    looked = any(each.looked for each in report.verdicts)
    # By Bonferroni over the looks, see `statistics.sequential`.
    error = answer.level * (1 + LOOK_SHARE * len(looks(len(report.confirm_seeds))) if looked else 1)
    hold = "all of these intervals hold at once" if several else "the interval holds"
    claims = CLAIMS.format(
        outcomes=outcomes,
        procedure=f"paired t{family if several else ' of the one comparison'}",
        level=f"{answer.level:g}{f', at a look {answer.level * LOOK_SHARE:g},' if looked else ''}",
        sure=1 - error,
        hold=f"or more {hold}" if looked else hold,
        but=EXTENDED if extended_after_results(report.extensions) else "",
    )
    nothing = NOTHING_CLAIMED.format(outcomes=outcomes)
    claims = worded(report.differences, intervals=claims, means=nothing, one=nothing)
    every = [each.estimate for each in report.effects]
    raised = [each.arm for each in report.effects if each.spread_raised]
    return [
        claims,
        *([RAISED.format(arms=", ".join(dict.fromkeys(raised)))] if raised else []),
        VERDICTS.format(margin=margin),
        EXPLORATORY.format(many=worded(every, intervals=MANY, means="", one="")),
        _collapse(report),
    ]


def _collapse(report: Report) -> str:
    """What no verdict rules out; looks are by fewer seeds than the study has."""

    def known(seeds: int) -> dict[str, str | float]:
        show = "shows" if seeds == 1 else "show"
        shares = {"tenth": unseen(0.1, seeds), "fifth": unseen(0.2, seeds)}
        return {"seeds": amount(seeds, "seed"), "show": show, **shares}

    looked = [each.difference.n for each in report.verdicts if each.looked and each.difference]
    early = COLLAPSE_EARLY.format(**known(min(looked))) if looked else ""
    seeds = len(report.confirm_seeds)
    return COLLAPSE.format(**known(seeds)) + (ONE_BY_ONE if seeds > 1 else "") + early
