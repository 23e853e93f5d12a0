"""Write the notes of a report: how its numbers were obtained and which claims they support."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from math import isfinite
from statistics import stdev

from orchestrator.plan.planned_trials import SEARCH
from orchestrator.plan.types import AnswerPlan
from orchestrator.report.caveats.interval_scope import format_scope
from orchestrator.report.caveats.warning_texts import count_search_trials
from orchestrator.report.results.contexts import context_notes
from orchestrator.report.results.extensions import has_exploratory_claims
from orchestrator.report.results.number_formats import choose_text, format_number
from orchestrator.report.results.searches import SEARCH_CLAIM_NOTE
from orchestrator.report.results.types import PriorWork, Report, completion_word
from orchestrator.statistics.moderated import MIN_ARMS, MIN_UNITS
from orchestrator.statistics.sequential import LOOK_LEVEL_SHARE, look_sizes
from orchestrator.statistics.verdicts import MIN_VERDICT_SEEDS, no_collapse_probability
from search_spaces.wording import amount
from trainables.metrics import Metric

INTERVALS_NOTE = (
    "Intervals of means are two-sided 95% Student t intervals over {unit}s, not corrected for several "
    "means, and clipped to the range of the quantity. There is no interval for a single {unit}, or if "
    "all {unit}s have the same value."
)
NO_INTERVALS_NOTE = (
    "No mean has an interval: a single {unit}, or equal values of all {unit}s, contain no information "
    "about chance."
)
ONE_SEED_NOTE = (
    "Every value comes from one {unit}. It has no interval and no p-value, because one {unit} contains "
    "no information about chance."
)
CLAIMS_NOTE = (
    "Claims rest only on {outcomes}. Differences are paired by {unit}. Intervals and p-values come from "
    "one procedure, {procedure}, and agree: p is at most {level} exactly if the interval excludes 0. "
    "With probability {sure:g} {hold}{but}."
)
EXTENSION_CLAUSE = ", except for results that were known when seeds or arms were added"
"""Added to the stated probability if seeds or arms were added after results had been observed."""
NO_CLAIM_NOTE = (
    "Claims would rest only on {outcomes}, by differences paired by {unit}. None of these differences "
    "has an interval or a p-value, so the report makes no claim about arms."
)
WIDENED_INTERVALS_NOTE = (
    "Intervals of {arms} are wider than the spread of their own {unit}s implies. The spread has a lower "
    "bound: half of the median spread of all arms, and the resolution of the quantity."
)
LOOKS_NOTE = (
    "Arms were tested after each round of {unit}s. An arm that was decided early has the interval and "
    "p-value of that test, at level {level:g}, which is a twentieth of the level of the sweep. Other "
    "arms are judged with all {unit}s at level {full:g}. An arm was also stopped if all {unit}s would "
    "hardly have decided it. Estimates of arms that stopped early are biased away from 0."
)
VERDICTS_NOTE = (
    "A verdict is better or worse if the interval excludes 0{margin}. All other verdicts are "
    "undecided. A verdict is withheld with fewer than 3 {unit}s, and if it depends on a single {unit} or "
    "on the value of a failed seed."
)
WIN_SHARE_NOTE = (
    "P(better) is the share of paired {unit}s in which the arm is better than its reference; it is "
    "P(higher) if no direction is declared as better. A tie counts half. Its interval is the 95% "
    "interval of Clopper and Pearson for this comparison alone. A tie counts as a loss at the lower end "
    "and as a win at the upper end, so with ties it is conservative. No verdict rests on P(better)."
)
MODERATION_NOTE = (
    "The variance of each difference is averaged with a prior that is estimated from all arms "
    "(moderated t, Smyth 2004): {priors}. An arm that varies far more than the others, or lacks a "
    "{unit}, keeps its own variance. If the spreads of arms differ by a factor of 5, up to 0.09 of "
    "studies without an effect report one at level 0.05."
)
NO_MODERATION_NOTE = (
    "answer.variance asks for averaged variances, but no variance is averaged: this needs {units} "
    "{unit}s and {arms} comparable arms in an outcome."
)
DECISION_CHANCE_NOTE = (
    "The chance that more {unit}s decide a comparison assumes that, before any result, an effect was as "
    "likely as none. Effects are assumed to be normal with the standard deviation of one paired "
    "difference. If nothing differs, the true chance is smaller than stated."
)
OBJECTIVE_SCOPE_NOTE = (
    "Search trials were ranked by the {which} of {metric}; values of confirm trials are those of their "
    "last report."
)
BEST_REPORT_CLAUSE = (
    " The best of several reports is chosen by the displayed value, so it is optimistic, more so with "
    "more reports."
)
EXPLORATORY_NOTE = (
    "All other differences are exploratory{many}. Values on validation data are optimistic{where}."
)
SEARCH_CHOICE_CLAUSE = ", because the search selected settings on these data"
CODE_CHOICE_CLAUSE = " if they were used for a choice, such as the best of several checkpoints"
"""Note on validation values without a search: only the training code decides which checkpoint it stores."""
MANY_INTERVALS_CLAUSE = ": some of that many intervals exclude 0 by chance"
FACTORIAL_NOTE = (
    "A main effect is the increase of the outcome when a component is present, averaged over all "
    "combinations of the other components. An interaction of two components is half of the difference "
    "between the effect of one with and without the other; for more components likewise. {chance} Every "
    "term needs all arms: a seed that some arm lacks has no value, and then the term has no p-value."
)
CONTRASTS_CLAUSE = (
    "Intervals and p-values of main effects and interactions hold together for {contrasts}, which form a "
    "family separate from the verdicts: they are exploratory."
)
NO_CONTRASTS_CLAUSE = "Main effects and interactions are exploratory: they have no intervals and no p-values."
UNMATCHED_PUBLISHED_NOTE = (
    "Published values without a measured result, because nothing was measured or every seed failed: {values}"
)
FAILURES_NOTE = (
    "A confirm trial that failed (diverged, out of memory, timed out, crashed) has no value: means are "
    "over the finished seeds. Such an arm has a verdict and a p-value only if they are the same for "
    "every value that the failed seeds could have had in the declared range of the metric."
)
UNMEASURED_SEEDS_NOTE = (
    "A seed that finished without a primary outcome counts as failed in that outcome: {arms}."
)
SEED_DEVIATION_NOTE = (
    "Over {seeds} {unit}s, {metric} of {arm} has a standard deviation of {spread:.2g}. Set "
    "answer.spread: {spread:.2g} in the spec, and the next plan reports which differences its {unit}s "
    "can detect."
)
COLLAPSE_NOTE = (
    "No test of means is robust to seeds that collapse occasionally, so look at single seeds: if one run in "
    "ten collapses, {seeds} show no collapse in {tenth:.0%} of cases; if one run in five, in {fifth:.0%}."
)
SINGLE_SEARCH_NOTE = (
    "Each arm was searched once. The comparison is between the settings that these searches found, and "
    "seeds repeat only the training with them. Intervals and p-values do not account for variance "
    "between searches. `search.repeats` in the spec searches every arm several times."
)
REPEATED_SEARCH_NOTE = (
    "Each arm was searched {repeats} times, and every search was confirmed on {seeds} of its own. The "
    "unit of all intervals and p-values is the repeat, with the mean over its seeds, so they account "
    "for variance between searches. Repeat r of all arms has the same draws, training seeds and confirm "
    "seeds."
)
CONTROLS_NOTE = (
    "A control is a copy of its reference under another name, with other draws and training seeds in "
    "its search. Its difference is tested by the same procedure, but separately and without correction. "
    "{rate}"
)
CONTROL_RATE_SENTENCE = (
    "{decided} of {compared} differ at level {level:g}, a rate of {share:.2g} [{low:.2g}, {high:.2g}]; "
    "chance alone gives {level:g}."
)
SAME_SETTINGS_NOTE = (
    "At given settings, an arm and its reference have the same values of the fields that both search "
    "({fields}): the values that the search of one of them chose. Such a difference is caused by the "
    "changes of the arm at these settings. The verdicts compare the arms with separately tuned "
    "settings. All of these differences hold together at level {level:g}, as a separate family.{kept}"
)
KEPT_VALUES_CLAUSE = " In fields that the other arm does not search, an arm keeps its own values: {arms}."
SEARCH_FAILED_NOTE = (
    "Some search trials failed and left fewer candidates, so these arms may be tuned less well than "
    "others: {arms}."
)
CONFIRMED_POINT_NOTE = (
    "The search had the objectives {objectives}. From the front of each arm, the point with the best "
    "{first} was confirmed, regardless of {others}; other points may be better there."
)
OUT_OF_RANGE_NOTE = (
    "{arms}: {metric} is {values}, but declared to be {range}. Either the measurement or the "
    "declaration is wrong; claims about the metric ignore this."
)


def verdict_lines(report: Report) -> list[str]:
    """Return one line per verdict, then the undecided arms of each primary outcome."""
    verdicts = (*report.verdicts, *report.pooled)
    tested_verdicts = [verdict for verdict in verdicts if not verdict.withheld]
    lines = [
        f"{'exploratory' if verdict.exploratory else 'decided'}: {verdict.line}"
        for verdict in tested_verdicts
        if verdict.is_decided
    ]
    for outcome in report.outcomes:
        of_outcome = [verdict for verdict in tested_verdicts if verdict.metric == outcome]
        undecided = [
            f"{verdict.arm} over all contexts" if verdict.pooled else verdict.arm
            for verdict in of_outcome
            if verdict.kind == "undecided"
        ]
        if undecided:
            arms = "every arm" if 1 < len(undecided) == len(of_outcome) else ", ".join(undecided)
            lines.append(f"undecided: {arms} in {outcome}, which does not mean that there is no difference")
    lines += [f"not tested: {verdict.line}" for verdict in verdicts if verdict.withheld]
    lines += [f"control: {verdict.line}" for verdict in report.controls]
    lines += [f"controls: {rate}"] if (rate := control_rate_sentence(report)) else []
    return [*lines, scope] if (scope := format_scope(report.interval_scope)) else lines


def control_rate_sentence(report: Report) -> str:
    """Return how often controls differ, as text; empty if no control was tested."""
    rate = report.control_rate
    if rate is None:
        return ""
    share, compared = rate.decided / rate.compared, amount(rate.compared, "comparison")
    return CONTROL_RATE_SENTENCE.format(**asdict(rate) | {"compared": compared, "share": share})


def _objective_scope_notes(report: Report) -> Iterator[str]:
    """Yield a note for each objective that counts other reports of search trials than the last one."""
    reports = amount(report.search_reports, "report")
    for metric, scope in report.scopes.items():
        which = f"best of up to {reports}" if scope == "best" else f"{scope.replace('-', ' ')} reports"
        yield OBJECTIVE_SCOPE_NOTE.format(metric=metric, which=which) + (
            BEST_REPORT_CLAUSE if scope == "best" else ""
        )


def notes(report: Report) -> list[str]:
    """Return the notes on the numbers of a report, one to a few sentences each, as plain text."""
    intervals = choose_text(
        report.estimates, intervals=INTERVALS_NOTE, mean_text=NO_INTERVALS_NOTE, single_seed=ONE_SEED_NOTE
    )
    note_texts = [*_out_of_range_notes(report), intervals.format(unit=report.unit)]
    note_texts += [scope] if (scope := format_scope(report.interval_scope)) else []
    note_texts += [*_claim_notes(report), *context_notes(report), FAILURES_NOTE]
    unfinished_arms = [tally.arm for tally in report.tallies if completion_word(tally.failures) == "measured"]
    note_texts += [UNMEASURED_SEEDS_NOTE.format(arms=", ".join(unfinished_arms))] if unfinished_arms else []
    note_texts += [metric.note for metric in report.quantities if metric.note]
    note_texts += _factorial_notes(report)
    note_texts += [SEARCH_CLAIM_NOTE] if report.searched else []
    note_texts += _objective_scope_notes(report)
    note_texts += _search_notes(report)
    if report.controls:
        note_texts.append(CONTROLS_NOTE.format(rate=control_rate_sentence(report)).strip())
    note_texts += _same_settings_notes(report)
    if len(report.objectives) > 1 and report.confirm_seeds and not report.points:
        first, others = report.objectives[0], " and ".join(report.objectives[1:])
        objectives = " and ".join(report.objectives)
        note_texts.append(CONFIRMED_POINT_NOTE.format(objectives=objectives, first=first, others=others))
    if report.answer is not None and any(verdict.looked for verdict in report.verdicts):
        level = report.answer.level
        note_texts.append(LOOKS_NOTE.format(level=level * LOOK_LEVEL_SHARE, full=level, unit=report.unit))
    note_texts += report.extensions
    note_texts += [f"Ended early: {reason}." for reason in report.skipped]
    note_texts += _published_notes(report)
    note_texts += [report.power] if report.power else []
    return [*note_texts, *_spread_notes(report)]


def _factorial_notes(report: Report) -> list[str]:
    """Return a note on main effects and interactions, if the report has any."""
    if not report.factorial:
        return []
    contrasts = CONTRASTS_CLAUSE.format(contrasts=amount(report.factorial[0].family, "contrast"))
    estimates = (effect.estimate for effect in report.factorial if effect.estimate is not None)
    chance = choose_text(
        estimates, intervals=contrasts, mean_text=NO_CONTRASTS_CLAUSE, single_seed=NO_CONTRASTS_CLAUSE
    )
    return [FACTORIAL_NOTE.format(chance=chance)]


def _published_notes(report: Report) -> list[str]:
    """Return the sources of published values, then the published values without a measured result."""
    sources = dict.fromkeys((cell.arm, cell.published_source) for cell in (*report.cells, *report.posthoc))
    prior_work = (row for row in report.prior_work if row.metric in report.metrics)
    sources |= dict.fromkeys((row.system, row.source) for row in prior_work)
    of_arms = [f"Published values of {arm}: {source}" for arm, source in sources if source]
    return of_arms + ([_unmatched_note(report.unmet_published)] if report.unmet_published else [])


def _search_notes(report: Report) -> list[str]:
    """Return how often confirmed arms were searched, and which of them had failed search trials."""
    if not report.confirm_seeds or not any(SEARCH in tally.outcomes for tally in report.tallies):
        return []
    searched = SINGLE_SEARCH_NOTE
    if report.repeats > 1:
        seeds = amount(len(report.unit_seeds[0][1]), "seed")
        searched = REPEATED_SEARCH_NOTE.format(repeats=report.repeats, seeds=seeds)
    failed_searches = [
        f"{tally.arm}, {amount(num_ended - num_kept, 'trial')} of {num_ended}"
        for tally in report.tallies
        for num_kept, num_ended in [count_search_trials(tally)]
        if num_kept < num_ended
    ]
    return [
        searched,
        *([SEARCH_FAILED_NOTE.format(arms="; ".join(failed_searches))] if failed_searches else []),
    ]


def _unmatched_note(rows: Sequence[PriorWork]) -> str:
    """Return published values that no measurement corresponds to, grouped by system and source."""
    values: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        statistic = "" if row.statistic == "mean" else f"{row.statistic} "
        words = f"{row.metric} {statistic}{format_number(row.value)}"
        values.setdefault((row.system, row.source), []).append(words)
    parts = [
        f"{system}, {', '.join(words)}" + (f" ({source})" if source else "")
        for (system, source), words in values.items()
    ]
    return UNMATCHED_PUBLISHED_NOTE.format(values="; ".join(parts))


def _out_of_range_notes(report: Report) -> Iterator[str]:
    """Yield notes on metrics measured outside their declared range."""
    outside: dict[str, dict[str, list[float]]] = {}
    for cell in report.cells:
        low, high = report.quantity(cell.metric).span
        # Rounding may put the mean of many numbers slightly outside of the range.
        slack = 1e-6 * max(abs(end) for end in (low, high, 1.0) if isfinite(end))
        if values := [value for _, value in cell.by_seed if not low - slack <= value <= high + slack]:
            outside.setdefault(cell.metric, {})[cell.arm] = values
    for metric, arms in outside.items():
        values, declared = [value for values in arms.values() for value in values], report.quantity(metric)
        yield OUT_OF_RANGE_NOTE.format(
            arms=", ".join(arms), metric=metric, values=_format_span(values), range=_format_range(declared)
        )


def _format_span(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.4g}" if low == high else f"{low:.4g} to {high:.4g}"


def _format_range(metric: Metric) -> str:
    if metric.low is None:
        return f"at most {metric.high:g}"
    return f"at least {metric.low:g}" if metric.high is None else f"from {metric.low:g} to {metric.high:g}"


def _spread_notes(report: Report) -> list[str]:
    """Return the measured standard deviation, with which the next sweep can be planned."""
    cell = report.cell(report.arms[0], report.outcomes[0]) if report.outcomes else None
    values = [value for _, value in cell.by_unit] if cell else []
    if len(values) < MIN_VERDICT_SEEDS or not (spread := stdev(values)):
        return []
    words = {"arm": report.arms[0], "metric": report.outcomes[0], "unit": report.unit}
    return [SEED_DEVIATION_NOTE.format(**words, seeds=len(values), spread=spread)]


def _claim_notes(report: Report) -> list[str]:
    """Return notes on which claims the numbers support."""
    answer, unit = report.answer, report.unit
    if answer is None or not answer.family or not answer.outcomes:
        return []
    margin = (
        f", and no difference larger than {answer.margin:g} where it lies within that on both sides"
        if answer.margin is not None
        else ""
    )
    raised_arms = dict.fromkeys(effect.arm for effect in report.effects if effect.spread_raised)
    widened = WIDENED_INTERVALS_NOTE.format(arms=", ".join(raised_arms), unit=unit)
    effects = [effect.estimate for effect in report.effects]
    many = choose_text(effects, intervals=MANY_INTERVALS_CLAUSE, mean_text="", single_seed="")
    where = SEARCH_CHOICE_CLAUSE if report.objectives else CODE_CHOICE_CLAUSE
    return [
        _procedure_note(report, answer),
        *([widened] if raised_arms else []),
        VERDICTS_NOTE.format(margin=margin, unit=unit),
        *_moderation_notes(report),
        *_win_share_notes(report),
        *(
            [DECISION_CHANCE_NOTE.format(unit=unit)]
            if any(verdict.outlooks for verdict in report.verdicts)
            else []
        ),
        EXPLORATORY_NOTE.format(many=many, where=where),
        _collapse_note(report),
    ]


def _procedure_note(report: Report, answer: AnswerPlan) -> str:
    """Return the note on the procedure of the verdicts, or that nothing is claimed without an interval."""
    outcomes, has_several = ", ".join(answer.outcomes), answer.family > 1
    moderated = "moderated " if any(verdict.prior for verdict in report.verdicts) else ""
    family = f" corrected by Bonferroni for all {amount(answer.family, 'comparison')}"
    has_looks = any(verdict.looked for verdict in report.verdicts)
    # Bonferroni correction over the looks, see `statistics.sequential`.
    error = answer.level * (
        1 + LOOK_LEVEL_SHARE * len(look_sizes(len(report.unit_seeds))) if has_looks else 1
    )
    hold = "all of these intervals hold at once" if has_several else "the interval holds"
    claims = CLAIMS_NOTE.format(
        outcomes=outcomes,
        procedure=f"{moderated}paired t{family if has_several else ' of the one comparison'}",
        level=f"{answer.level:g}{f', at a look {answer.level * LOOK_LEVEL_SHARE:g},' if has_looks else ''}",
        sure=1 - error,
        hold=f"or more {hold}" if has_looks else hold,
        unit=report.unit,
        but=EXTENSION_CLAUSE if has_exploratory_claims(report.extensions) else "",
    )
    nothing = NO_CLAIM_NOTE.format(outcomes=outcomes, unit=report.unit)
    return choose_text(report.differences, intervals=claims, mean_text=nothing, single_seed=nothing)


def _moderation_notes(report: Report) -> list[str]:
    """Return the priors that variances were averaged with, by outcome and context."""
    if report.answer is None or not report.answer.moderated:
        return []
    priors = {
        (verdict.metric, verdict.context, bool(verdict.pooled)): verdict.prior
        for verdict in (*report.verdicts, *report.pooled)
        if verdict.prior
    }
    words = [
        f"{metric}{f', {context}' if context else ''}{', over all contexts' if pooled else ''}: "
        f"{format_number(prior.spread)} with {prior.freedom:.3g} degrees of freedom"
        for (metric, context, pooled), prior in priors.items()
    ]
    if not words:
        return [NO_MODERATION_NOTE.format(units=MIN_UNITS, unit=report.unit, arms=MIN_ARMS)]
    return [MODERATION_NOTE.format(priors="; ".join(words), unit=report.unit)]


def _same_settings_notes(report: Report) -> list[str]:
    """Return a note on comparisons at given settings."""
    if not report.crossed:
        return []
    fields = ", ".join(dict.fromkeys(path for verdict in report.crossed for path in verdict.exchanged))
    keeps = {
        verdict.arm if verdict.settings_of != verdict.arm else verdict.reference: verdict.kept
        for verdict in report.crossed
        if verdict.kept
    }
    words = "; ".join(f"{arm}: {', '.join(paths)}" for arm, paths in keeps.items())
    arms_text = KEPT_VALUES_CLAUSE.format(arms=words) if words else ""
    return [SAME_SETTINGS_NOTE.format(fields=fields, level=report.crossed[0].level, kept=arms_text)]


def _win_share_notes(report: Report) -> list[str]:
    shares = (verdict.wins for verdict in (*report.verdicts, *report.pooled))
    has_interval = any(share is not None and share.low is not None for share in shares)
    return [WIN_SHARE_NOTE.format(unit=report.unit)] * has_interval


def _collapse_note(report: Report) -> str:
    """Return a note on rare collapses, which no verdict excludes, for the seeds of the earliest look."""
    looked = [verdict.difference for verdict in report.verdicts if verdict.looked]
    seeds = min([len(report.confirm_seeds), *(difference.n for difference in looked if difference)])
    tenth, fifth = (no_collapse_probability(share, seeds) for share in (0.1, 0.2))
    return COLLAPSE_NOTE.format(seeds=amount(seeds, "seed"), tenth=tenth, fifth=fifth)
