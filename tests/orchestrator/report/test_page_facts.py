"""What the page says in words, of the answer, of arms and of where numbers come from, is in the records."""

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
from tests.orchestrator.report.results.test_origin import KNOWN, made_with
from tests.orchestrator.report.studies import study
from tests.orchestrator.report.writers.test_page import read

OUTCOME = "near-iid/accuracy"


def crashing(arm, seed):
    """Two seeds of the last arm fail, each for its own reason."""
    return {(2, 1): OutcomeKind.CRASHED, (2, 3): OutcomeKind.DIVERGED}.get((arm, seed), OutcomeKind.FINISHED)


@pytest.fixture(scope="module")
def made():
    found = study(3, 5, 8, fate=crashing)
    proofs = tuple(
        ArmCheck(
            f"arm-{at}",
            12_345 + at,
            (),
            (),
            1.5e6 + at * 1e5,
            4e6 + at * 1e6,
            1.0,
            1.0,
            functional_change=True,
        )
        for at in range(3)
    )
    prices = tuple(ArmEstimate(f"arm-{at}", {}, 2e9 + at * 1e9, 5e9 + at * 1e9) for at in range(3))
    reasons = {OutcomeKind.CRASHED: "ran out of memory", OutcomeKind.DIVERGED: "loss is nan"}
    records = tuple(
        replace(record, reason=reasons.get(record.outcome, "made up")) for record in found.records
    )
    return replace(found, records=records, plan=replace(found.plan, proofs=proofs, prices=prices))


@pytest.fixture(scope="module")
def html(made):
    return html_page(made.report(), made.details())


def header(html):
    """Text of what comes before the first section."""
    return read(html.partition("<main>")[0]).text


def cards(html):
    """Title of each arm's card to its facts, by name."""
    found = {}
    for card in re.findall(r'<article class="arm">(.*?)</article>', html, re.DOTALL):
        facts = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", card, re.DOTALL)
        found[re.search("<h3>(.*?)</h3>", card)[1]] = dict(facts)
    return found


def section(html, name):
    return read(re.search(rf'<section id="{name}">.*?</section>', html, re.DOTALL)[0]).text


def confirmed(made, arm):
    return {
        record.seed: record.last.metrics[OUTCOME]
        for record in made.records
        if (record.arm, record.phase, record.outcome) == (arm, "confirm", OutcomeKind.FINISHED)
    }


@pytest.mark.usefixtures("undrawn")
def test_page_starts_with_question_verdicts_and_cost(made, html):
    seen = header(html)
    assert made.plan.question in seen
    lines = re.findall(r"<li class=\"[\w-]*\">(.*?)</li>", html.partition("<main>")[0])
    # What is decided stands above the figures, all else below them.
    assert [line.partition(":")[0] for line in lines] == ["arm-1", "arm-0", "arm-2"]
    whole, baseline, failing = map(str, lines)
    mean = statistics.fmean(confirmed(made, "arm-0").values())
    assert f"({OUTCOME} {mean:.3f} [" in baseline
    assert baseline.endswith("5 seeds finished)")
    difference = statistics.fmean(
        value - confirmed(made, "arm-0")[seed] for seed, value in confirmed(made, "arm-1").items()
    )
    found = re.search(rf"{OUTCOME} (\S+) \[(\S+), (\S+)\] against arm-0, p=\S+, 5 of 5 seeds finished", whole)
    assert found
    assert float(found[1]) == pytest.approx(difference, abs=0.0005)
    assert float(found[2]) < difference < float(found[3])
    assert "arm-2: undecided: 2 seeds failed" in failing
    assert "3 of 5 seeds finished" in failing
    ended = [record.outcome for record in made.records]
    assert (
        f"It cost {len(ended)} trials ({ended.count(OutcomeKind.CRASHED)} crashed, "
        f"{ended.count(OutcomeKind.DIVERGED)} diverged, {ended.count(OutcomeKind.FINISHED)} finished, "
        f"{ended.count(OutcomeKind.PRUNED)} pruned) and " in seen
    )
    hours = sum(record.last.seconds for record in made.records) * made.plan.resources.cpus / 3600
    assert f"{hours:.3g} device hours of work within " in seen


def test_cards_of_arms(made, html):
    found = cards(html)
    assert list(found) == ["1. arm-0", "2. arm-1", "3. arm-2"]
    for place, facts in enumerate(found.values()):
        assert facts["parameters"] == f"{12_345 + place:,}"
        forward, step = (1.5 + place / 10, 4 + place), (2 + place, 5 + place)
        assert facts["FLOPs, forward"].startswith(f"{forward[0]:g} M to {forward[1]:g} M of one sequence")
        assert facts["FLOPs, training"] == f"{step[0]} G to {step[1]} G a step"
        own = [record for record in made.records if record.arm == f"arm-{place}"]
        for phase in ("search", "confirm", "posthoc"):
            outcomes = [record.outcome for record in own if record.phase == phase]
            shown = ", ".join(f"{outcomes.count(kind)} {kind.value}" for kind in sorted(set(outcomes)))
            assert facts[phase] == f"{shown} of {len(outcomes)} planned"
        chosen = next(trial.assignment for trial in own if trial.phase == "confirm")
        shown = f"train.lr = {chosen['train.lr']:g}; model.layers = 12; model.gate = true"
        assert facts["chosen by its search"] == shown
        hours = sum(record.last.seconds for record in own) * made.plan.resources.cpus / 3600
        assert facts["work"] == f"{hours:.3g} device hours"
    first, second, third = found.values()
    assert "why" not in first
    assert (second["why"], third["why"]) == ("reason of arm-1", "reason of arm-2")
    assert (second["compared with"], second["changes"]) == ("arm-0", "model.width 64 → 65")
    assert third["changes"] == "model.width 64 → 66"
    assert third["confirm crashed"] == "1 trial: ran out of memory"
    assert third["confirm diverged"] == "1 trial: loss is nan"
    assert third["search diverged"] == "1 trial: loss is nan"
    assert "1 diverged" in first["search"]
    assert "1 pruned" in first["search"]


@pytest.mark.usefixtures("undrawn")
def test_a_best_value_at_the_edge_of_its_range_is_told_beside_its_search():
    made = study(2, 0, 8, thresholds=())
    own = [
        record for record in made.records if record.arm == "arm-1" and record.outcome is OutcomeKind.FINISHED
    ]
    best = max(own, key=lambda each: each.last.metrics["valid/accuracy"])

    def at(layers):
        inner = {**best.assignment, "train.lr": 0.003, "model.layers": layers}
        records = [replace(record, assignment=inner) if record is best else record for record in made.records]
        found = replace(made, records=tuple(records))
        shown = section(html_page(found.report(), found.details()), "search").split("sampler")
        return [re.findall(r"the best model\.layers, .*?better value", each) for each in shown[1:]]

    (shown,) = at(12)[1]
    assert shown.startswith("the best model.layers, 12, lies at the high end of its range (2 to 12,")
    assert at(7)[1] == []


def test_arms_are_compared_at_equal_compute_on_the_page(made, html):
    (table,) = [
        cost_table
        for cost_table in cost_tables(made.report())
        if "at the cost of their references" in cost_table.title
    ]
    seen = section(html, "compute")
    assert table.title in seen
    assert [row[0] for row in table.rows] == ["arm-1", "arm-2"]
    assert all(cell in seen for row in table.rows for cell in row)


SAID = {
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


def test_provenance_section():
    known = {name: f"its {name}" for name in SAID} | {"cpu_count": 64, "dirty": True}
    assert set(known) <= set(Provenance.__dataclass_fields__)
    made = made_with({**KNOWN, **known})
    html = html_page(made.report(), made.details())
    facts = dict(re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", html[html.index('id="provenance"') :]))
    for name, words in SAID.items():
        assert facts[words] == {"dirty": "yes"}.get(name, str(known[name])), words
    assert facts["GPUs"] == "a GPU"
    assert facts["digest of the spec"] == made.plan.spec_digest
    assert (facts["data, listops/train"], facts["data, listops/near-iid"]) == ("11aa", "22bb")
    assert facts["seeds of confirm trials"] == "101, 102"
    searching = study(1, 0, 2, thresholds=())
    searching = replace(
        searching, plan=replace(searching.plan, search=replace(searching.plan.search, seed=77))
    )
    assert dict(searching.details().origin)["seed of the searches"] == "77"
    folded = dict(re.findall(r"<summary>(.*?)</summary><pre>\s*(.*?)\s*</pre>", html, re.DOTALL))
    (lock,) = [text for name, text in folded.items() if name.startswith("installed packages, digest ")]
    assert lock.splitlines() == KNOWN["packages"]
    diff = folded["uncommitted changes to the code of haltsweep"]
    assert diff.splitlines() == [str(escape(line)) for line in KNOWN["code_diff"].split("\n")]


def palettes():
    """Colours of figures as files, and as the page has them on light, on dark and on paper."""
    style = (Path(page_module.__file__).parent / "page.css").read_text()
    found = [
        re.findall(rf"--figure-{name}: (#\w{{6}})", style) for name in ("blue", "orange", "green", "purple")
    ]
    return [(BLUE, ORANGE, GREEN, PURPLE), *zip(*found, strict=True)]


def test_colours_are_told_apart_by_the_colour_blind():
    """Where red and green look alike no two of them do; better and worse are told apart by everybody."""
    assert len(palettes()) == 4
    for colours in palettes():
        for kind, matrix in SIMULATED.items():
            seen = [simulated(colour, matrix) for colour in colours]
            for one, other in combinations(seen, 2) if kind != "tritanopia" else [(seen[1], seen[2])]:
                assert math.dist(one, other) > 0.1, (kind, colours)


def simulated(colour, matrix):
    """Red, green and blue of linear light, as Machado et al. 2009 have them seen."""
    values = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    light = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in values]
    return [sum(a * b for a, b in zip(row, light, strict=True)) for row in matrix]


SIMULATED = {
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
"""Matrices at full severity, Table 1 there."""


def test_changes_that_a_card_cuts_are_unfolded_below_it():
    made = study(2, seeds=2, trials=0, thresholds=())
    first, other = made.plan.arms
    changes = tuple(Change(f"train.field_{number}", 0, number) for number in range(1, 9))
    plan = replace(made.plan, arms=(first, replace(other, changes=changes)))
    made = replace(made, plan=plan)
    html = html_page(made.report(), made.details())
    assert "all that arm-1 changes" in html
    assert "all that arm-0 changes" not in html
    assert "train.field_8: 0 -&gt; 8" in html


def test_costs_are_read_on_a_phone_without_scrolling():
    made = study(2, seeds=4, trials=0)
    found = cost_tables(made.report())
    assert len(found) == 3
    assert all(each.stacked for each in found)
