"""The cards of arms on the page agree with the records."""

import re
from dataclasses import replace

import pytest

from orchestrator.plan.types import ArmCheck, ArmEstimate
from orchestrator.report.writers.page import html_page
from orchestrator.trials import OutcomeKind
from tests.orchestrator.report.studies import make_study


def make_page_study():
    """Return a study where two seeds of the last arm failed for different reasons."""
    failures = {(2, 1): OutcomeKind.CRASHED, (2, 3): OutcomeKind.DIVERGED}
    base_study = make_study(
        3, 5, 8, outcome_of=lambda arm, seed: failures.get((arm, seed), OutcomeKind.FINISHED)
    )
    checks, estimates = [], []
    for index in range(3):
        forward, training = (1.5e6 + index * 1e5, 4e6 + index * 1e6), (2e9 + index * 1e9, 5e9 + index * 1e9)
        checks.append(
            ArmCheck(f"arm-{index}", 12_345 + index, (), (), *forward, 1.0, 1.0, functional_change=True)
        )
        estimates.append(ArmEstimate(f"arm-{index}", {}, *training))
    reasons = {OutcomeKind.CRASHED: "ran out of memory", OutcomeKind.DIVERGED: "loss is nan"}
    records = tuple(
        replace(record, reason=reasons.get(record.outcome, "synthetic")) for record in base_study.records
    )
    plan = replace(base_study.plan, proofs=tuple(checks), prices=tuple(estimates))
    return replace(base_study, records=records, plan=plan)


def arm_cards(html):
    """Return the facts of each arm's card by title and name."""
    facts_of_arms = {}
    for card in re.findall(r'<article class="arm">(.*?)</article>', html, re.DOTALL):
        facts = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", card, re.DOTALL)
        facts_of_arms[re.search("<h3>(.*?)</h3>", card)[1]] = dict(facts)
    return facts_of_arms


@pytest.mark.usefixtures("undrawn")
def test_arm_cards_match_the_records():
    page_study = make_page_study()
    facts_by_title = arm_cards(html_page(page_study.report(), page_study.details()))
    assert list(facts_by_title) == ["1. arm-0", "2. arm-1", "3. arm-2"]
    for arm_number, facts in enumerate(facts_by_title.values()):
        assert facts["parameters"] == f"{12_345 + arm_number:,}"
        forward, training = (1.5 + arm_number / 10, 4 + arm_number), (2 + arm_number, 5 + arm_number)
        assert facts["FLOPs, forward"].startswith(f"{forward[0]:g} M to {forward[1]:g} M ")
        assert facts["FLOPs, training"] == f"{training[0]} G to {training[1]} G a step"
        arm_records = [record for record in page_study.records if record.arm == f"arm-{arm_number}"]
        for phase in ("search", "confirm", "posthoc"):
            outcomes = [record.outcome for record in arm_records if record.phase == phase]
            expected = ", ".join(f"{outcomes.count(kind)} {kind.value}" for kind in sorted(set(outcomes)))
            assert facts[phase] == f"{expected} of {len(outcomes)} planned"
        params = next(trial.assignment for trial in arm_records if trial.phase == "confirm")
        expected = f"train.lr = {params['train.lr']:g}; model.layers = 12; model.gate = true"
        assert expected in facts.values()
        hours = sum(record.last.seconds for record in arm_records) * page_study.plan.resources.cpus / 3600
        assert facts["work"].startswith(f"{hours:.3g} ")
    _, second_facts, third_facts = facts_by_title.values()
    assert {"reason of arm-1", "arm-0", "model.width 64 → 65"} <= set(second_facts.values())
    assert third_facts["confirm crashed"] == "1 trial: ran out of memory"
    assert third_facts["confirm diverged"] == "1 trial: loss is nan"
