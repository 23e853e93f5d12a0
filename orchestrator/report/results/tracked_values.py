"""Values of arms in the tracking UI: metrics and tags computed from a report."""

from orchestrator.report.caveats.interval_scope import SCOPE_TAG, format_scope
from orchestrator.report.caveats.warning_texts import warning_texts
from orchestrator.report.results.types import Cell, Effect, Report

ANSWER = "answer"
"""Prefix of primary outcomes in the tracking UI, which sorts by name and displays a dozen characters.

The arm's tag of that name states which outcome it is.
"""
DECISION = "decision"
"""Name of the tag with the verdict in one word, `reference` for arms with which others are compared."""
NOTICE = "notice"
"""Name of the tag with the warnings printed before the results."""
ANSWERS = {
    "": "estimate",
    ".diff": "difference",
    ".ci_high": "estimate_high",
    ".ci_low": "estimate_low",
    ".diff_high": "difference_high",
    ".diff_low": "difference_low",
    ".n": "n",
}
"""Names in the tracking UI by suffix of a metric."""


def arm_metrics(report: Report) -> dict[str, dict[str, float]]:
    """Return the metrics of each arm in the tracking UI.

    They are the numbers of finished and failed confirm seeds and, of every metric, the mean with its interval
    and n, and the difference to the arm's reference with its interval. Primary outcomes are repeated under
    names that sort first, together with p. These are rounded to ten digits, because the UI displays all
    digits and means end in rounding errors.
    """
    flat: dict[str, dict[str, float]] = {arm: {} for arm in report.arms}
    answered: dict[str, dict[str, float]] = {arm: {} for arm in report.arms}
    for tally in report.tallies if report.answer else ():
        flat[tally.arm] |= {"seeds_finished": tally.seeds[0], "seeds_failed": tally.seeds[1]}
        if report.repeats > 1:
            flat[tally.arm] |= {"repeats_finished": tally.units[0], "repeats_failed": tally.units[1]}
    for cell in report.cells:
        effect = report.effect(cell.arm, cell.metric)
        values = _values_by_suffix(cell, effect)
        flat[cell.arm] |= {cell.metric + suffix: value for suffix, value in values.items()}
        if cell.metric in report.outcomes:
            place = report.outcomes.index(cell.metric)
            answers = {ANSWERS[suffix]: value for suffix, value in values.items() if suffix in ANSWERS}
            if (p := _logged_p(report, effect)) is not None:
                answers["p"] = p
            rounded = {name: float(f"{value:.10g}") for name, value in answers.items()}
            answered[cell.arm] |= {answer_key(name, place): value for name, value in rounded.items()}
    # The UI displays the first items at the top: the first outcome, then the others.
    first = f"{ANSWER}/"
    for values in answered.values():
        for name in [name for name in values if not name.startswith(first)]:
            values[name] = values.pop(name)
    return {arm: answered[arm] | flat[arm] for arm in report.arms}


def _values_by_suffix(cell: Cell, effect: Effect | None) -> dict[str, float]:
    """Return the values of a metric by the suffix of their name.

    The UI sorts by name and cuts long names. The mean has the name of the metric and thus comes first.
    """
    values: dict[str, float | None] = {
        "": cell.estimate.mean,
        ".ci_high": cell.estimate.high,
        ".ci_low": cell.estimate.low,
        ".n": cell.estimate.n,
        ".published": cell.published,
    }
    if effect is not None:
        difference = effect.estimate
        values |= {".diff": difference.mean, ".diff_high": difference.high, ".diff_low": difference.low}
    return {suffix: value for suffix, value in values.items() if value is not None}


def answer_key(name: str, index: int = 0) -> str:
    """Return `answer/estimate` of the first primary outcome, `answer2/estimate` of the second."""
    return f"{ANSWER}{index + 1}/{name}" if index else f"{ANSWER}/{name}"


def _logged_p(report: Report, effect: Effect | None) -> float | None:
    """Return the p of a primary outcome once all trials have ended.

    Logged values cannot be deleted in MLflow. If seeds that were added later failed and there is no p any
    more, p is 1, since nothing is claimed.
    """
    if effect is None or not effect.primary or report.left:
        return None
    return 1.0 if effect.p is None and report.extensions else effect.p


def arm_tags(report: Report) -> dict[str, dict[str, str]]:
    """Return the tags of each arm in the tracking UI: its verdicts and the warnings before them."""
    outcomes = {answer_key("", n).rstrip("/"): metric for n, metric in enumerate(report.outcomes)}
    references = {verdict.reference for verdict in report.verdicts}
    tags = {arm: outcomes | ({DECISION: "reference"} if arm in references else {}) for arm in report.arms}
    notice, scope = " ".join(warning_texts(report, for_verdicts=True)), format_scope(report.interval_scope)
    common = {name: text for name, text in {NOTICE: notice, SCOPE_TAG: scope}.items() if text}

    def name(kind: str, metric: str) -> str:
        return kind if metric == report.outcomes[0] else f"{kind}.{metric}"

    for verdict in report.verdicts:
        tags[verdict.arm][name("verdict", verdict.metric)] = verdict.line
        if verdict.kind and verdict.metric == report.outcomes[0]:
            tags[verdict.arm][DECISION] = verdict.qualified_kind
        tags[verdict.arm] |= common
    for verdict in report.controls:
        tags[verdict.arm][name("control", verdict.metric)] = verdict.line
    for verdict in report.pooled:
        for arm in verdict.pooled:
            tags[arm][name("verdict.pooled", verdict.metric)] = verdict.line
    for context in report.contexts:
        for arm in context.arms:
            tags[arm]["context"] = context.name
    return tags
