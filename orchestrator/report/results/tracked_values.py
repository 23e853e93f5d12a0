"""Values of arms in the tracking UI: metrics and tags computed from a report."""

from orchestrator.report.caveats.interval_scope import SCOPE_TAG, format_scope
from orchestrator.report.caveats.warning_texts import warning_texts
from orchestrator.report.results.types import ArmResult, Effect, Report

ANSWER_PREFIX = "answer"
"""Prefix of primary outcomes in the tracking UI, which sorts by name and displays a dozen characters.

The arm's tag of that name states which outcome it is.
"""
DECISION_TAG = "decision"
"""Name of the tag with the verdict in one word, `reference` for arms that are the reference of others."""
NOTICE_TAG = "notice"
"""Name of the tag with the warnings printed before the results."""
ANSWER_NAMES = {
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
    metrics_by_arm: dict[str, dict[str, float]] = {arm: {} for arm in report.arms}
    answers_by_arm: dict[str, dict[str, float]] = {arm: {} for arm in report.arms}
    for tally in report.tallies if report.answer else ():
        metrics_by_arm[tally.arm] |= {"seeds_finished": tally.seeds[0], "seeds_failed": tally.seeds[1]}
        if report.repeats > 1:
            metrics_by_arm[tally.arm] |= {
                "repeats_finished": tally.units[0],
                "repeats_failed": tally.units[1],
            }
    for cell in report.cells:
        effect = report.effect(cell.arm, cell.metric)
        values = _values_by_suffix(cell, effect)
        metrics_by_arm[cell.arm] |= {cell.metric + suffix: value for suffix, value in values.items()}
        if cell.metric in report.outcomes:
            index = report.outcomes.index(cell.metric)
            answers = {
                ANSWER_NAMES[suffix]: value for suffix, value in values.items() if suffix in ANSWER_NAMES
            }
            if (p := _logged_p(report, effect)) is not None:
                answers["p"] = p
            rounded = {name: float(f"{value:.10g}") for name, value in answers.items()}
            answers_by_arm[cell.arm] |= {answer_key(name, index): value for name, value in rounded.items()}
    # The UI displays the first items at the top: the first outcome, then the others.
    first_prefix = f"{ANSWER_PREFIX}/"
    for values in answers_by_arm.values():
        for name in [name for name in values if not name.startswith(first_prefix)]:
            values[name] = values.pop(name)
    return {arm: answers_by_arm[arm] | metrics_by_arm[arm] for arm in report.arms}


def _values_by_suffix(cell: ArmResult, effect: Effect | None) -> dict[str, float]:
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
    return f"{ANSWER_PREFIX}{index + 1}/{name}" if index else f"{ANSWER_PREFIX}/{name}"


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
    tags = {arm: outcomes | ({DECISION_TAG: "reference"} if arm in references else {}) for arm in report.arms}
    warnings_text, scope = (
        " ".join(warning_texts(report, for_verdicts=True)),
        format_scope(report.interval_scope),
    )
    common_tags = {
        tag_name: text for tag_name, text in {NOTICE_TAG: warnings_text, SCOPE_TAG: scope}.items() if text
    }

    def tag_name(kind: str, metric: str) -> str:
        return kind if metric == report.outcomes[0] else f"{kind}.{metric}"

    for verdict in report.verdicts:
        tags[verdict.arm][tag_name("verdict", verdict.metric)] = verdict.line
        if verdict.kind and verdict.metric == report.outcomes[0]:
            tags[verdict.arm][DECISION_TAG] = verdict.qualified_kind
        tags[verdict.arm] |= common_tags
    for verdict in report.controls:
        tags[verdict.arm][tag_name("control", verdict.metric)] = verdict.line
    for verdict in report.pooled:
        for arm in verdict.pooled:
            tags[arm][tag_name("verdict.pooled", verdict.metric)] = verdict.line
    for context in report.contexts:
        for arm in context.arms:
            tags[arm]["context"] = context.name
    return tags
