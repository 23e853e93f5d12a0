"""Create the sections of the page, in the order of a reader's questions."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from orchestrator.plan.display.format import count, format_amount, format_duration, value_words
from orchestrator.report.caveats.notes import control_rate_sentence
from orchestrator.report.comparisons import repeat_tables
from orchestrator.report.figures.curve_figures import cost_panels, curve_panels
from orchestrator.report.figures.interval_figures import metric_panels
from orchestrator.report.figures.search_figures import search_panels
from orchestrator.report.halting.halting_section import halting_section
from orchestrator.report.results.arm_changes import change_rows, full_change_lines, has_omissions
from orchestrator.report.results.arm_facts import ArmFacts
from orchestrator.report.results.contexts import split_by_context
from orchestrator.report.results.details import Details
from orchestrator.report.results.number_formats import choose_text, format_interval, format_number
from orchestrator.report.results.searches import SearchHistory
from orchestrator.report.results.types import UNRUN_OUTCOMES, ArmVerdict, Report, SearchBest
from orchestrator.report.writers import tables
from orchestrator.report.writers.first_arms import MAX_DRAWN_ARMS, figures_note, limit_figures
from orchestrator.report.writers.page_parts import ArmCard, PagePart, PageSection, draw_pictures
from orchestrator.spec.scopes import counted_name
from orchestrator.trials import numbered
from search_spaces.wording import amount as counted

OUTCOME_TEXT = (
    "{squares}. On the right, or below, is the difference of each arm to its reference, {differences}."
)
CURVES_TEXT = (
    "{lines}; the reference is dashed grey. A failed seed is drawn separately, in orange, up to its "
    "end. Training and selection data: not a statistical test."
)
SEARCH_TEXT = (
    "Every arm has a separate search. Blue is the best value so far. Orange is the expected best of as "
    "many trials, drawn from the observed ones as if they were independent (Dodge et al. 2019), with "
    "the middle 80%. Trials that did not finish count as the worst finished one; below 5 finished "
    "trials there is no expected best. Values are of the split that the search uses, so they support no "
    "claim about arms. Axes omit the worst tenth. Dotted lines are the ends of a range, the diamond is "
    "the best trial."
)
IMPORTANCE_TEXT = (
    "Importance is the share of the differences between trials that a random forest attributes to a "
    "dimension. It does not cover values that were not tried."
)
COST_TEXT = (
    "Each arm by its number above, as trained; numbers of overlapping marks are above them{again}; "
    "means over seeds. Exploratory."
)
REEVALUATED_COST_CLAUSE = (
    ". Below, arm by arm, the same checkpoints under other settings (blue), with a square as trained, "
    "and the reference (dashed grey)"
)
MIN_TRIALS_PER_DIMENSION = 10
"""Finished trials per dimension below which the importance is reported as indistinguishable from chance."""
PROVENANCE_TEXT = "Up to three different values of an item are listed, in the order of the trials."


def page_sections(report: Report, details: Details | None) -> Iterator[PageSection]:
    """Yield all sections with content."""
    sections = [_outcome_section(report), _arms_section(report, details)]
    if details is not None:
        drawn_details = limit_figures(report, details)
        sections += [_search_section(report, details), _compute_figures_section(report, drawn_details)]
        sections += [_curves_section(report, drawn_details), halting_section(drawn_details)]
    else:
        sections.append(_compute_section(report, "", ()))
    sections.append(_metrics_section(report))
    if details is not None:
        part = PagePart(facts=details.origin, folded=details.listings)
        sections.append(PageSection("provenance", "Provenance", (PROVENANCE_TEXT,), (part,)))
    yield from (section for section in sections if not section.is_empty)


def arm_sentences(report: Report, details: Details | None) -> Iterator[tuple[str, str]]:
    """Yield kind and sentence of each arm, context by context, then verdicts over all contexts.

    A compared arm has its verdicts, others have the values that they reached.
    """
    for arm in (arm for _, part in split_by_context(report) for arm in part.arms):
        sentences = [(_css_class(verdict), verdict.line) for verdict in report.verdicts if verdict.arm == arm]
        sentences += [("control", verdict.line) for verdict in report.controls if verdict.arm == arm]
        if not sentences and report.answer is not None:
            sentences = [("", _reference_sentence(report, arm))]
        yield from sentences
    yield from ((_css_class(verdict), verdict.line) for verdict in report.pooled)
    if rate := control_rate_sentence(report):
        yield "control", f"controls: {rate}"
    yield from (("", _search_sentence(best)) for best in report.searched)
    if not report.verdicts and not report.searched and not report.cells:
        has_begun = details is not None and any(facts.ended for facts in details.arms)
        yield "", "No trial has finished yet." if has_begun else "Nothing has run yet."


def _css_class(verdict: ArmVerdict) -> str:
    return (verdict.kind or "").partition(" ")[0]


def _reference_sentence(report: Report, arm: str) -> str:
    cells = [cell for metric in report.outcomes if (cell := report.cell(arm, metric))]
    values = ", ".join(f"{cell.metric} {format_interval(cell.estimate)}" for cell in cells) or "no value"
    seeds, unit = report.finished_text(arm), report.unit
    counts, _, word = seeds.rpartition(" ")
    finished_text = f"{counts} {unit}s {word}" if counts else f"{counted(int(seeds), unit)} finished"
    return f"{arm}: reference of other arms ({values}, {finished_text})"


def _search_sentence(best: SearchBest) -> str:
    values = ", ".join(f"{metric} {format_number(value)}" for metric, value in best.values.items())
    reports = f", its best of {counted(best.reports, 'report')}" if best.reports > 1 else ""
    trials = counted(best.finished, "finished trial")
    return f"{best.arm}: best of {trials}, {values}{reports}; not a statistical test"


def cost_sentence(report: Report, details: Details | None) -> str:
    """Return the cost of the sweep in one sentence."""
    outcomes = Counter[str]()
    for tally in report.tallies:
        for counts in tally.outcomes.values():
            outcomes.update(counts)
    if not outcomes:
        return ""
    planned = outcomes.total()
    unrun_outcomes = Counter(
        {outcome: outcomes.pop(outcome) for outcome in UNRUN_OUTCOMES if outcome in outcomes}
    )
    num_run, texts = (
        outcomes.total(),
        [_outcome_counts(counts) for counts in (outcomes, unrun_outcomes) if counts],
    )
    trials_text = (
        f"{count(num_run)} of {counted(planned, 'trial')}" if unrun_outcomes else counted(num_run, "trial")
    )
    words = f"{'So far it' if 'open' in unrun_outcomes else 'It'} cost {trials_text} ({'; '.join(texts)})"
    if details is None:
        return f"{words} and {format_duration(sum(tally.seconds for tally in report.tallies))} of work."
    work = sum(facts.device_s for facts in details.arms) / 3600
    duration_text = f" within {format_duration(details.wall_clock_s)}" if details.wall_clock_s else ""
    return f"{words} and {work:.3g} device hours of work{duration_text}."


def _outcome_counts(counts: Mapping[str, int]) -> str:
    """Return how many trials ended in which way, e.g. `2 diverged, 10 finished`."""
    return ", ".join(f"{count(number)} {_outcome_word(name)}" for name, number in sorted(counts.items()))


def _outcome_word(outcome: str) -> str:
    """Return how a trial ended, in words."""
    return "not ended" if outcome == "open" else str(outcome).replace("_", " ")


def outcome_caption(report: Report) -> str:
    """Return the explanation of the figures of primary outcomes."""
    unit, by_unit = f"{report.unit}s", f"{report.unit} by {report.unit}"
    return OUTCOME_TEXT.format(
        squares=choose_text(
            report.estimates,
            intervals=f"Squares are means over {unit} with intervals, grey points the {unit} themselves",
            mean_text=f"Squares are means over {unit}, grey points the {unit} themselves",
            single_seed=f"A square is the one {report.unit} of an arm",
        ),
        differences=choose_text(
            report.differences,
            intervals=f"{by_unit}, with the interval that the verdict rests on; grey ones support no claim",
            mean_text=f"{by_unit}, without an interval: they support no claim",
            single_seed=f"in that {report.unit}: one {report.unit} supports no claim",
        ),
    )


def arm_reasons(details: Details | None) -> dict[str, str]:
    """Return the reason for each arm, as stated in the spec."""
    return {facts.arm: facts.why for facts in details.arms if facts.why} if details is not None else {}


def _outcome_section(report: Report) -> PageSection:
    title = "Primary outcome" if len(report.outcomes) < 2 else "Primary outcomes"
    return PageSection("outcome", title, (), (PagePart(grids=tuple(tables.answer_tables(report))),))


def _arms_section(report: Report, details: Details | None) -> PageSection:
    if details is None:
        parts = (PagePart(grids=(*tables.change_tables(report), tables.outcome_table(report))),)
        return PageSection("arms", "Arms", (), parts)
    changes_by_arm = {row[0]: row for row in change_rows(report.changes)}
    cards = tuple(
        ArmCard(f"{place}. {facts.arm}", tuple(_card_facts(facts, changes_by_arm.get(facts.arm))))
        for place, facts in enumerate(details.arms, start=1)
    )
    folded = [(f"all settings of {report.arms[0]}", details.settings)] if details.settings else []
    folded += [
        (f"all that {changes.arm} changes", full_change_lines(changes))
        for changes in report.changes
        if has_omissions(changes)
    ]
    grids = tuple(repeat_tables.chosen_settings_table(report))
    return PageSection("arms", "Arms", cards=cards, parts=(PagePart(grids=grids, folded=tuple(folded)),))


def _card_facts(facts: ArmFacts, changed_fields: tuple[str, ...] | None) -> Iterator[tuple[str, str]]:
    if facts.why:
        yield "why", facts.why
    if facts.reference:
        yield "compared with", facts.reference
    if changed_fields:
        titles = ("changes", "chosen by its search", "not searched")
        # Browsers break lines inside "->".
        texts = (words.replace(" -> ", " → ") for words in changed_fields[2:])
        yield from ((title, words) for title, words in zip(titles, texts, strict=True) if words != "-")
    if facts.parameters is not None:
        yield "parameters", count(facts.parameters)
    if facts.forward_flops is not None:
        yield "FLOPs, forward", f"{_format_range(facts.forward_flops)} of {facts.flops_of}"
    if facts.step_flops is not None:
        yield "FLOPs, training", f"{_format_range(facts.step_flops)} a step"
    for phase, counts in facts.ended.items():
        yield phase, f"{_outcome_counts(counts)} of {count(facts.planned.get(phase, 0))} planned"
    for failures in facts.failures:
        yield (
            f"{failures.phase} {_outcome_word(failures.outcome)}",
            f"{counted(failures.count, 'trial')}: {failures.reason}",
        )
    if facts.more_failures:
        yield "failed otherwise", counted(facts.more_failures, "trial")
    yield "work", f"{facts.device_s / 3600:.3g} device hours"


def _format_range(ends: tuple[float, float]) -> str:
    low, high = map(format_amount, ends)
    return low if low == high else f"{low} to {high}"


def _search_section(report: Report, details: Details) -> PageSection:
    parts = tuple(
        PagePart(
            title=course.arm,
            facts=tuple(_search_facts(course)),
            flags=course.edges,
            panels=draw_pictures(search_panels(course, place)) if place <= MAX_DRAWN_ARMS else (),
        )
        for place, course in enumerate(details.searches, start=1)
    )
    has_importance = any(course.importance is not None for course in details.searches)
    texts = (SEARCH_TEXT, IMPORTANCE_TEXT) if has_importance else (SEARCH_TEXT,)
    return PageSection("search", "Search", (*texts, *figures_note(report)), parts)


def _search_facts(course: SearchHistory) -> Iterator[tuple[str, str]]:
    yield "sampler", course.sampler
    if course.repeats > 1:
        yield "repeats", count(course.repeats)
    outcomes = _outcome_counts(Counter(trial.outcome for trial in course.trials)) or "none ended"
    yield "trials", f"{outcomes} of {count(course.planned)} planned"
    if (best := course.best) is not None:
        values = zip(map(counted_name, course.objectives), best.values, strict=True)
        message = ", ".join(f"{name} {value:.4g}" for name, value in values)
        params = ", ".join(f"{path} = {value_words(value)}" for path, value in best.assignment.items())
        number = numbered(best.repeat, best.number)
        yield "best", f"trial {number}: {message} with {params or 'nothing to choose'}"
    importance = course.importance
    if importance and importance.trials < MIN_TRIALS_PER_DIMENSION * len(importance.shares):
        trials, fields = importance.trials, len(importance.shares)
        basis = f"{counted(trials, 'finished trial')} and {counted(fields, 'dimension')}"
        yield "importance", f"of {basis}: too few to distinguish it from chance"


def _compute_figures_section(report: Report, details: Details) -> PageSection:
    panels = list(cost_panels(report, details))
    pairs = dict.fromkeys((curve.outcome, curve.cost) for curve in details.costs)
    parts = []
    for place, (outcome, cost) in enumerate(pairs, start=1):
        pair_panels = [panel for panel in panels if f"{panel.name}-".startswith(f"cost-{place}-")]
        parts.append(PagePart(title=f"{outcome} against {cost}", panels=draw_pictures(pair_panels)))
    reevaluation_clause = REEVALUATED_COST_CLAUSE if any(curve.path for curve in details.costs) else ""
    return _compute_section(report, COST_TEXT.format(again=reevaluation_clause) if panels else "", parts)


def _compute_section(report: Report, text: str, parts: Sequence[PagePart]) -> PageSection:
    """Return the section of cost figures and tables; without costs it has only re-evaluations."""
    title = "Outcome against compute" if text or report.equal_costs else "Re-evaluated checkpoints"
    part = PagePart(grids=tuple(tables.cost_tables(report)))
    return PageSection("compute", title, (text,) if text else (), (*parts, part))


def _curves_section(report: Report, details: Details) -> PageSection:
    panels = list(curve_panels(report, details))
    parts = []
    for place, metric in enumerate(dict.fromkeys(curve.metric for curve in details.curves), start=1):
        metric_panels_drawn = [panel for panel in panels if panel.name.startswith(f"curve-{place}-")]
        parts.append(PagePart(title=metric, panels=draw_pictures(metric_panels_drawn)))
    band_text = "Mean over the seeds that finished, the band from the lowest to the highest of them"
    lines = "The one seed that finished" if all(curve.seeds <= 1 for curve in details.curves) else band_text
    texts = (CURVES_TEXT.format(lines=lines), *figures_note(report))
    return PageSection("curves", "Learning curves", texts, tuple(parts))


def _metrics_section(report: Report) -> PageSection:
    part = PagePart(
        panels=draw_pictures(metric_panels(report)),
        grids=(*tables.metric_tables(report), *tables.search_tables(report)),
    )
    text = "All values except those marked as primary are exploratory."
    return PageSection("metrics", "All metrics", (text,), (part,))
