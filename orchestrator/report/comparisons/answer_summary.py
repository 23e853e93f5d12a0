"""Summarise the verdicts of a report in one or two sentences, without statistical terms."""

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.report.results.number_formats import format_number
from orchestrator.report.results.types import ArmVerdict, Report
from search_spaces.wording import join_words

DIFFERENCE_KINDS = ("better", "worse", "higher", "lower")
"""Verdicts that state a difference."""
DECIDED_WORDS = (*DIFFERENCE_KINDS, "no")
"""First words of verdicts that make a statement, including `no difference`."""
MAX_ARMS = 3
"""Maximum number of arms with a difference that the summary names; it counts the others."""


def answer_summary(report: Report, reasons: Mapping[str, str] | None = None) -> str:
    """Return a summary of all verdicts, or an empty string if there are none.

    Args:
        report: A report. Only its verdicts are used, so that the summary claims no more than they do.
        reasons: The reason for each arm, from the spec; printed after the name of the arm.
    """
    verdicts = report.pooled or report.verdicts
    difference_verdicts = [verdict for verdict in verdicts if verdict.kind in DIFFERENCE_KINDS]
    if all(verdict.difference is None for verdict in verdicts):
        return ""
    parts = [*_difference_sentences(report, difference_verdicts, reasons or {})]
    equal_verdicts = [verdict for verdict in verdicts if verdict.kind == "no difference"]
    undecided_verdicts = [
        verdict for verdict in verdicts if verdict.kind == "undecided" and not verdict.withheld
    ]
    adjective = "other " if difference_verdicts or equal_verdicts else ""
    groups = {
        "No difference that matters": equal_verdicts,
        "Not decided yet, since trials have not run": [
            verdict for verdict in undecided_verdicts if verdict.waiting
        ],
        f"No {adjective}difference could be shown": [
            verdict for verdict in undecided_verdicts if not verdict.waiting
        ],
    }
    parts += [f"{text}: {_outcomes_by_arms(group)}." for text, group in groups.items() if group]
    return " ".join(parts)


def _difference_sentences(
    report: Report, decided: Sequence[ArmVerdict], reasons: Mapping[str, str]
) -> Iterator[str]:
    arms = list(dict.fromkeys(verdict.arm for verdict in decided))
    for arm in arms[:MAX_ARMS]:
        arm_verdicts = [verdict for verdict in decided if verdict.arm == arm]
        reason = f" ({reasons[arm]})" if reasons.get(arm) else ""
        search_text = " at the settings found by one search" if arm_verdicts[0].covers == "one search" else ""
        pooling_text = " on average over all contexts" if arm_verdicts[0].pooled else ""
        changes = join_words([_describe_change(report, verdict) for verdict in arm_verdicts])
        yield f"{arm}{reason} {changes}{pooling_text}{search_text}."
    if len(arms) > MAX_ARMS:
        yield f"{len(arms) - MAX_ARMS} further arms differ from their references."


def _describe_change(report: Report, verdict: ArmVerdict) -> str:
    """Return e.g. `raises test/accuracy by 0.052 (better), from 0.428`."""
    assert verdict.difference is not None
    change = verdict.difference.mean
    verb = "raises" if change > 0 else "lowers"
    reference = None if verdict.pooled else report.cell(verdict.reference, verdict.metric)
    start = f", from {format_number(reference.estimate.mean)}" if reference else ""
    exploratory = "exploratory" if verdict.exploratory else ""
    remark = verdict.qualified_kind if verdict.kind in {"better", "worse"} else exploratory
    remark_text = f" ({remark})" if remark else ""
    return f"{verb} {verdict.metric} by {format_number(abs(change))}{remark_text}{start}"


def _outcomes_by_arms(verdicts: Sequence[ArmVerdict]) -> str:
    """Return e.g. `minus-gate and minus-transition in test/accuracy; minus-gate in test/depth`."""
    arms: dict[str, dict[str, None]] = {}
    for verdict in verdicts:
        mark = " (exploratory)" if verdict.exploratory else ""
        arms.setdefault(verdict.metric, {})[verdict.arm + mark] = None
    return "; ".join(
        f"{join_words([*names]) if len(names) <= 2 * MAX_ARMS else f'{len(names)} arms'} in {metric}"
        for metric, names in arms.items()
    )
