"""Verdicts are withheld on different test sets and on outcomes that settings fix; in every form alike."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from orchestrator.plan.types import AnswerPlan, ArmCheck, Plan
from orchestrator.report.caveats.notes import verdict_lines
from orchestrator.report.results.summary import arm_metrics, arm_tags, summarise
from orchestrator.report.results.types import ArmVerdict, Report
from orchestrator.report.writers.json_file import as_json
from orchestrator.report.writers.page import html_page
from orchestrator.report.writers.write import as_markdown_report
from orchestrator.trials import Record
from tests.orchestrator.report.comparisons.test_answers import METRICS, kinds, plan, records

OUTCOME = "iid/accuracy"
DEPTH = replace(METRICS[1], is_cost=True, high_from="depth_bound", moves_with="depth")
OF_DEPTH = AnswerPlan(("iid/accuracy", "iid/depth"), None, 0.05, 6)


def with_digests(digest: Callable[[str, int], dict[str, str]]) -> list[Record]:
    """Records of trials that reported the digests of their splits, by arm and seed."""
    return [replace(record, attributes=digest(record.arm, record.seed)) for record in records()]


def measuring(each: Record, metrics: dict[str, float]) -> Record:
    """The record with these last values."""
    assert each.last is not None
    return replace(each, last=replace(each.last, metrics={**each.last.metrics, **metrics}))


def value_of(each: Record, metric: str) -> float:
    assert each.last is not None
    return each.last.metrics[metric]


def verdict(report: Report, arm: str, metric: str = OUTCOME) -> ArmVerdict:
    return next(verdict for verdict in report.verdicts if (verdict.arm, verdict.metric) == (arm, metric))


def test_different_test_examples_withhold_the_verdict() -> None:
    found = summarise(
        plan(), with_digests(lambda arm, _: {"iid/digest": "b" * 32 if arm == "good" else "a" * 32})
    )
    assert kinds(found) == {"good": "undecided", "bad": "worse", "same": "no difference"}
    said = verdict(found, "good")
    assert (said.withheld, said.p, said.outlooks) == ("different-test-sets", None, ())
    assert (
        "good was measured on other examples of iid (digest bbbbbbbb) than baseline (aaaaaaaa)" in said.line
    )
    effect = found.effect("good", OUTCOME)
    assert effect is not None
    assert effect.p is effect.p_sign_flips is None
    assert "answer/p" not in arm_metrics(found)["good"]
    [warning] = json.loads(as_json(found))["warnings"]
    assert {key: warning[key] for key in ("code", "arm", "outcome")} == {
        "code": "different-test-sets",
        "arm": "good",
        "outcome": OUTCOME,
    }
    assert warning["text"] in arm_tags(found)["good"]["notice"]
    assert arm_tags(found)["good"]["verdict"] == said.line
    assert any(line.startswith("not tested: good:") for line in verdict_lines(found))
    for text in (as_markdown_report(found, []), html_page(found)):
        assert "other examples of iid" in text


@pytest.mark.parametrize(
    "digest",
    [
        lambda _arm, seed: {"iid/digest": str(seed)},
        lambda arm, _seed: {"iid/digest": "same", "far/digest": arm},
        lambda arm, _seed: {"iid/digest": "same"} if arm == "baseline" else {},
        lambda arm, _seed: {"iid/digest": "first" if arm == "baseline" else 'second {"form": "sequence"}'},
    ],
    ids=["one data set a seed", "another split", "of one arm alone", "written otherwise"],
)
def test_digests_of_other_splits_change_nothing(
    digest: Callable[[str, int], dict[str, str]],
) -> None:
    without, found = summarise(plan(), records()), summarise(plan(), with_digests(digest))
    assert found.verdicts == without.verdicts
    assert found.warnings == ()


def test_missing_digests_are_reported_once() -> None:
    own = plan(trainable="train.py")
    scope = summarise(own, records()).interval_scope
    assert scope is not None
    assert scope.unchecked_tests == ("iid",)
    told = [line for line in verdict_lines(summarise(own, records())) if "iid/digest" in line]
    assert len(told) == 1
    checked = summarise(own, with_digests(lambda *_: {"iid/digest": "same"})).interval_scope
    assert checked is not None
    assert checked.unchecked_tests == ()


def of_depth(**parts: object) -> Plan:
    return plan(answer=OF_DEPTH, metrics=(METRICS[0], DEPTH), **parts)


def at_depth(arm: str, depth: float) -> list[Record]:
    """Records in which one arm runs `depth` layers in every seed, on every split."""
    own = {"iid/depth": depth, "far/depth": depth}
    return [
        measuring(
            record,
            {"iid/depth_bound": 4.0, "far/depth": value_of(record, "iid/depth")}
            | (own if record.arm == arm else {}),
        )
        for record in records()
    ]


def test_fixed_cost_is_not_tested() -> None:
    found = summarise(of_depth(), at_depth("good", 4.0))
    said = verdict(found, "good", "iid/depth")
    assert (said.kind, said.withheld, said.p) == ("undecided", "fixed-by-construction", None)
    assert said.difference is not None
    assert said.text == "fixed by construction: iid/depth of good is 4 in every seed"
    assert [(warning.code, warning.arm, warning.outcome) for warning in found.warnings] == [
        ("fixed-by-construction", "good", "iid/depth")
    ]
    assert verdict(found, "good").kind == "better", "accuracy is tested"
    assert not verdict(found, "bad", "iid/depth").withheld


def test_depth_at_its_bound_is_fixed() -> None:
    deep = [
        measuring(each, {"iid/depth_bound": bound, "iid/depth": bound}) if each.arm == "good" else each
        for each in at_depth("bad", 3.0)
        for bound in [4.0 + each.number % 2]
    ]
    said = verdict(summarise(of_depth(), deep), "good", "iid/depth")
    assert said.withheld == "fixed-by-construction"


@pytest.mark.parametrize("case", ["halts", "another split differs", "no cost"])
def test_trained_outcomes_are_tested(case: str) -> None:
    made, known = of_depth(), at_depth("good", 2.0)
    if case == "halts":
        proof = ArmCheck("good", 1, (), (), 1e6, 4e6, 1.0, 1.0, functional_change=True)
        made = replace(made, proofs=(proof,))
    elif case == "no cost":
        made = replace(made, metrics=METRICS)
    else:
        known = [measuring(each, {"far/depth": 2.5}) if each.arm == "good" else each for each in known]
    assert not verdict(summarise(made, known), "good", "iid/depth").withheld
