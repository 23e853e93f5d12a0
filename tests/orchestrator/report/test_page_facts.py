"""Statements of the page about the answer, the arms and their provenance agree with the records."""

import math
import re
import statistics
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from markupsafe import escape

from orchestrator.plan.types import ArmCheck, ArmEstimate, Change
from orchestrator.provenance import Provenance
from orchestrator.report.figures.style import BLUE, GREEN, ORANGE, PURPLE
from orchestrator.report.writers import page as page_module
from orchestrator.report.writers.page import html_page
from orchestrator.report.writers.tables import cost_tables
from orchestrator.trials import OutcomeKind
from tests.orchestrator.report.results.test_origin import PROVENANCE, build_study
from tests.orchestrator.report.studies import make_study
from tests.orchestrator.report.writers.test_page import parse_html

OUTCOME = "near-iid/accuracy"


def outcome_with_failures(arm, seed):
    """Let two seeds of the last arm fail for different reasons."""
    return {(2, 1): OutcomeKind.CRASHED, (2, 3): OutcomeKind.DIVERGED}.get((arm, seed), OutcomeKind.FINISHED)


@pytest.fixture(scope="module")
def page_study():
    base_study = make_study(3, 5, 8, outcome_of=outcome_with_failures)
    checks = tuple(
        ArmCheck(
            f"arm-{arm_number}",
            12_345 + arm_number,
            (),
            (),
            1.5e6 + arm_number * 1e5,
            4e6 + arm_number * 1e6,
            1.0,
            1.0,
            functional_change=True,
        )
        for arm_number in range(3)
    )
    estimates = tuple(
        ArmEstimate(f"arm-{arm_number}", {}, 2e9 + arm_number * 1e9, 5e9 + arm_number * 1e9)
        for arm_number in range(3)
    )
    reasons = {OutcomeKind.CRASHED: "ran out of memory", OutcomeKind.DIVERGED: "loss is nan"}
    records = tuple(
        replace(record, reason=reasons.get(record.outcome, "synthetic")) for record in base_study.records
    )
    return replace(
        base_study, records=records, plan=replace(base_study.plan, proofs=checks, prices=estimates)
    )


@pytest.fixture(scope="module")
def html(page_study):
    return html_page(page_study.report(), page_study.details())


def header_text(html):
    """Return the text before the first section."""
    return parse_html(html.partition("<main>")[0]).text


def arm_cards(html):
    """Return the facts of each arm's card by title and name."""
    facts_of_arms = {}
    for card in re.findall(r'<article class="arm">(.*?)</article>', html, re.DOTALL):
        facts = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", card, re.DOTALL)
        facts_of_arms[re.search("<h3>(.*?)</h3>", card)[1]] = dict(facts)
    return facts_of_arms


def section_text(html, name):
    return parse_html(re.search(rf'<section id="{name}">.*?</section>', html, re.DOTALL)[0]).text


def confirmed_values(page_study, arm):
    return {
        record.seed: record.last.metrics[OUTCOME]
        for record in page_study.records
        if (record.arm, record.phase, record.outcome) == (arm, "confirm", OutcomeKind.FINISHED)
    }


@pytest.mark.usefixtures("undrawn")
def test_page_starts_with_question_verdicts_and_cost(page_study, html):
    header = header_text(html)
    assert page_study.plan.question in header
    lines = re.findall(r"<li class=\"[\w-]*\">(.*?)</li>", html.partition("<main>")[0])
    # Decided arms stand above the figures, all other arms below them.
    assert [line.partition(":")[0] for line in lines] == ["arm-1", "arm-0", "arm-2"]
    decided_line, baseline_line, undecided_line = map(str, lines)
    mean = statistics.fmean(confirmed_values(page_study, "arm-0").values())
    assert f"({OUTCOME} {mean:.3f} [" in baseline_line
    assert baseline_line.endswith("5 seeds finished)")
    difference = statistics.fmean(
        value - confirmed_values(page_study, "arm-0")[seed]
        for seed, value in confirmed_values(page_study, "arm-1").items()
    )
    match = re.search(
        rf"{OUTCOME} (\S+) \[(\S+), (\S+)\] against arm-0, p=\S+, 5 of 5 seeds finished", decided_line
    )
    assert match
    assert float(match[1]) == pytest.approx(difference, abs=0.0005)
    assert float(match[2]) < difference < float(match[3])
    assert "arm-2: undecided: 2 seeds failed" in undecided_line
    assert "3 of 5 seeds finished" in undecided_line
    outcomes = [record.outcome for record in page_study.records]
    assert (
        f"It cost {len(outcomes)} trials ({outcomes.count(OutcomeKind.CRASHED)} crashed, "
        f"{outcomes.count(OutcomeKind.DIVERGED)} diverged, {outcomes.count(OutcomeKind.FINISHED)} finished, "
        f"{outcomes.count(OutcomeKind.PRUNED)} pruned) and " in header
    )
    hours = sum(record.last.seconds for record in page_study.records) * page_study.plan.resources.cpus / 3600
    assert f"{hours:.3g} device hours of work within " in header


def test_arm_cards_match_the_records(page_study, html):
    facts_by_title = arm_cards(html)
    assert list(facts_by_title) == ["1. arm-0", "2. arm-1", "3. arm-2"]
    for arm_number, facts in enumerate(facts_by_title.values()):
        assert facts["parameters"] == f"{12_345 + arm_number:,}"
        forward, training = (1.5 + arm_number / 10, 4 + arm_number), (2 + arm_number, 5 + arm_number)
        assert facts["FLOPs, forward"].startswith(f"{forward[0]:g} M to {forward[1]:g} M of one sequence")
        assert facts["FLOPs, training"] == f"{training[0]} G to {training[1]} G a step"
        arm_records = [record for record in page_study.records if record.arm == f"arm-{arm_number}"]
        for phase in ("search", "confirm", "posthoc"):
            outcomes = [record.outcome for record in arm_records if record.phase == phase]
            expected = ", ".join(f"{outcomes.count(kind)} {kind.value}" for kind in sorted(set(outcomes)))
            assert facts[phase] == f"{expected} of {len(outcomes)} planned"
        params = next(trial.assignment for trial in arm_records if trial.phase == "confirm")
        expected = f"train.lr = {params['train.lr']:g}; model.layers = 12; model.gate = true"
        assert facts["chosen by its search"] == expected
        hours = sum(record.last.seconds for record in arm_records) * page_study.plan.resources.cpus / 3600
        assert facts["work"] == f"{hours:.3g} device hours"
    first_facts, second_facts, third_facts = facts_by_title.values()
    assert "why" not in first_facts
    assert (second_facts["why"], third_facts["why"]) == ("reason of arm-1", "reason of arm-2")
    assert (second_facts["compared with"], second_facts["changes"]) == ("arm-0", "model.width 64 → 65")
    assert third_facts["changes"] == "model.width 64 → 66"
    assert third_facts["confirm crashed"] == "1 trial: ran out of memory"
    assert third_facts["confirm diverged"] == "1 trial: loss is nan"
    assert third_facts["search diverged"] == "1 trial: loss is nan"
    assert "1 diverged" in first_facts["search"]
    assert "1 pruned" in first_facts["search"]


@pytest.mark.usefixtures("undrawn")
def test_page_warns_if_a_best_value_lies_at_the_edge_of_its_range():
    page_study = make_study(2, 0, 8, thresholds=())
    finished_records = [
        record
        for record in page_study.records
        if record.arm == "arm-1" and record.outcome is OutcomeKind.FINISHED
    ]
    best_record = max(finished_records, key=lambda record: record.last.metrics["valid/accuracy"])

    def edge_warnings(layers):
        assignment = {**best_record.assignment, "train.lr": 0.003, "model.layers": layers}
        records = [
            replace(record, assignment=assignment) if record is best_record else record
            for record in page_study.records
        ]
        edge_study = replace(page_study, records=tuple(records))
        parts = section_text(html_page(edge_study.report(), edge_study.details()), "search").split("sampler")
        return [re.findall(r"the best model\.layers, .*?better value", part) for part in parts[1:]]

    (warning,) = edge_warnings(12)[1]
    assert warning.startswith("the best model.layers, 12, lies at the high end of its range (2 to 12,")
    assert edge_warnings(7)[1] == []


def test_page_compares_arms_at_equal_compute(page_study, html):
    (table,) = [
        candidate
        for candidate in cost_tables(page_study.report())
        if "at the cost of their references" in candidate.title
    ]
    text = section_text(html, "compute")
    assert table.title in text
    assert [row[0] for row in table.rows] == ["arm-1", "arm-2"]
    assert all(cell in text for row in table.rows for cell in row)


LABELS = {
    "commit": "commit of the launch folder",
    "dirty": "uncommitted changes in the launch folder",
    "code_commit": "commit of the code of haltsweep",
    "code_changes": "digest of uncommitted changes to the code of haltsweep",
    "code": "digest of the executed code",
    "python": "Python",
    "platform": "system",
    "cpu": "processor",
    "cpu_count": "cores",
    "host": "machine",
}


def test_page_lists_the_provenance():
    expected = {name: f"its {name}" for name in LABELS} | {"cpu_count": 64, "dirty": True}
    assert set(expected) <= set(Provenance.__dataclass_fields__)
    page_study = build_study({**PROVENANCE, **expected})
    html = html_page(page_study.report(), page_study.details())
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", html[html.index('id="provenance"') :]))
    for name, label in LABELS.items():
        assert facts[label] == {"dirty": "yes"}.get(name, str(expected[name])), label
    assert facts["GPUs"] == "a GPU"
    assert facts["digest of the spec"] == page_study.plan.spec_digest
    assert (facts["data, listops/train"], facts["data, listops/near-iid"]) == ("11aa", "22bb")
    assert facts["seeds of confirm trials"] == "101, 102"
    search_study = make_study(1, 0, 2, thresholds=())
    search_study = replace(
        search_study, plan=replace(search_study.plan, search=replace(search_study.plan.search, seed=77))
    )
    assert dict(search_study.details().origin)["seed of the searches"] == "77"
    listings = dict(re.findall(r"<summary>(.*?)</summary><pre>\s*(.*?)\s*</pre>", html, re.DOTALL))
    (packages,) = [text for name, text in listings.items() if name.startswith("installed packages, digest ")]
    assert packages.splitlines() == PROVENANCE["packages"]
    diff = listings["uncommitted changes to the code of haltsweep"]
    assert diff.splitlines() == [str(escape(line)) for line in PROVENANCE["code_diff"].split("\n")]


def figure_palettes():
    """Return the colours of figure files and of the page on light, on dark and on paper."""
    style = (Path(page_module.__file__).parent / "page.css").read_text()
    colours_by_name = [
        re.findall(rf"--figure-{name}: (#\w{{6}})", style) for name in ("blue", "orange", "green", "purple")
    ]
    return [(BLUE, ORANGE, GREEN, PURPLE), *zip(*colours_by_name, strict=True)]


def test_colour_blind_readers_can_distinguish_the_colours():
    """Under red-green blindness all pairs differ; under tritanopia better and worse differ."""
    assert len(figure_palettes()) == 4
    for colours in figure_palettes():
        for kind, matrix in VISION_MATRICES.items():
            perceived = [simulate_vision(colour, matrix) for colour in colours]
            for first_colour, second_colour in (
                combinations(perceived, 2) if kind != "tritanopia" else [(perceived[1], perceived[2])]
            ):
                assert math.dist(first_colour, second_colour) > 0.1, (kind, colours)


def simulate_vision(colour, matrix):
    """Return linear RGB as perceived according to Machado et al. (2009)."""
    values = [int(colour[offset : offset + 2], 16) / 255 for offset in (1, 3, 5)]
    light = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in values]
    return [sum(weight * component for weight, component in zip(row, light, strict=True)) for row in matrix]


VISION_MATRICES = {
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}
"""Matrices at full severity from Table 1 of Machado et al. (2009)."""


def test_page_unfolds_the_changes_that_a_card_shortens():
    page_study = make_study(2, seeds=2, trials=0, thresholds=())
    first_arm, second_arm = page_study.plan.arms
    changes = tuple(Change(f"train.field_{number}", 0, number) for number in range(1, 9))
    plan = replace(page_study.plan, arms=(first_arm, replace(second_arm, changes=changes)))
    page_study = replace(page_study, plan=plan)
    html = html_page(page_study.report(), page_study.details())
    assert "all that arm-1 changes" in html
    assert "all that arm-0 changes" not in html
    assert "train.field_8: 0 -&gt; 8" in html


def test_cost_tables_are_stacked_on_narrow_screens():
    page_study = make_study(2, seeds=4, trials=0)
    tables = cost_tables(page_study.report())
    assert len(tables) == 3
    assert all(table.stacked for table in tables)
