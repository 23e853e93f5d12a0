"""The page says what the report says, and nothing in it is anybody's mark-up."""

import os
import re
import statistics
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from itertools import product

import pytest

from orchestrator.report.results.summary import summarise
from orchestrator.report.writers.page import html_page
from orchestrator.report.writers.tables import all_tables, answer_tables, cost_tables, metric_tables
from orchestrator.report.writers.write import write_report_folder
from orchestrator.spec.section import Objective
from orchestrator.trials import OutcomeKind
from tests.orchestrator.report.comparisons.test_answers import plan, records
from tests.orchestrator.report.studies import Study, study

EVIL = "<script>alert(1)</script>\x1b[2J"
ORDER = (
    "answer",
    "outcome",
    "arms",
    "search",
    "compute",
    "curves",
    "halting",
    "metrics",
    "provenance",
    "reading",
)


class Reader(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.given: list[tuple[str, str, str]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.given += [(tag, name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data

    def labels(self, name: str) -> str:
        """What the figures called so say to who cannot see them."""
        return " ".join(
            value for tag, key, value in self.given if tag == "svg" and key == "aria-label" and name in value
        )


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    return reader


def shown(made: Study) -> Reader:
    return read(html_page(made.report(), made.details()))


def test_page_has_verdicts_tables_figures_and_notes() -> None:
    found = summarise(plan(), records(good=(103,)))
    seen = read(html_page(found))
    for verdict in found.verdicts:
        assert verdict.line in seen.text
    for grid in all_tables(found):
        assert grid.title in seen.text
        assert all(cell in seen.text for row in grid.rows for cell in row)
    assert seen.tags.count("table") == len(all_tables(found))
    assert seen.tags.count("svg") == 4


def test_user_texts_are_escaped() -> None:
    hostile = study([EVIL, f"$\\frac{{{EVIL}"], seeds=3, trials=3)
    made = replace(hostile, plan=replace(hostile.plan, question=EVIL))
    html = html_page(made.report(), made.details())
    assert "script" not in read(html).tags
    assert "\x1b" not in html
    assert r"<script>alert(1)</script>\x1b[2J" in read(html).text


def test_a_page_needs_nothing_but_itself() -> None:
    html = html_page((made := study()).report(), made.details())
    seen = read(html)
    assert not {"script", "link", "iframe", "img"} & set(seen.tags)
    assert not [each for each in seen.given if each[1] in ("src", "srcset") or each[1].startswith("on")]
    places = [value for _, name, value in seen.given if name in ("href", "xlink:href")]
    assert places
    assert all(place.startswith("#") for place in places)
    ids = [value for _, name, value in seen.given if name == "id"]
    assert len(ids) == len(set(ids)), "no two elements have one name"
    assert {place.removeprefix("#") for place in places} <= set(ids)
    assert set(re.findall(r"url\(#([^)]*)\)", html)) <= set(ids)
    assert len(html) < 5_000_000


@pytest.mark.usefixtures("undrawn")
def test_order_of_sections() -> None:
    html = html_page((made := study()).report(), made.details())
    places = [html.index(f'id="{name}"') for name in ORDER]
    assert places == sorted(places)


@pytest.mark.usefixtures("undrawn")
def test_numbers_are_those_of_the_records() -> None:
    made = study(
        fate=lambda arm, seed: OutcomeKind.CRASHED if (arm, seed) == (2, 1) else OutcomeKind.FINISHED
    )
    seen = shown(made)
    for arm in (arm.name for arm in made.plan.arms):
        own = [record for record in made.records if record.arm == arm]
        confirmed = [
            record for record in own if record.phase == "confirm" and record.outcome is OutcomeKind.FINISHED
        ]
        values = [record.last.metrics["near-iid/accuracy"] for record in confirmed if record.last]
        assert f"{arm} {statistics.fmean(values):.3f} [" in seen.labels("near-iid/accuracy, mean with")
        curve = [record.last.metrics["valid/accuracy"] for record in confirmed if record.last]
        ends = f"mean of {len(curve)} seeds at step 300 {statistics.fmean(curve):.4g}"
        assert ends in seen.labels(f"valid/accuracy of {arm} over steps")
        hours = sum(record.last.seconds for record in own if record.last) * made.plan.resources.cpus / 3600
        assert f"{hours:.3g} device hours" in seen.text
        depth = statistics.fmean(record.last.metrics["near-iid/depth"] for record in confirmed if record.last)
        assert f"as trained {depth:.4g}," in seen.labels(f"near-iid/accuracy of {arm} against near-iid/depth")
        assert f"near-iid {depth:.3g} ({depth - 2:.3g} to {depth + 1:.3g})" in seen.labels(f"depth of {arm}")
    assert "1 crashed, 4 finished of 5 planned" in seen.text
    assert "1 failed" in seen.labels("valid/accuracy of arm-2 over steps")
    for grid in (*answer_tables(made.report()), *metric_tables(made.report()), *cost_tables(made.report())):
        assert grid.title in seen.text
        assert all(cell in seen.text for row in grid.rows for cell in row)


@pytest.mark.parametrize(
    ("fate", "said"),
    [(None, "no result yet: 3 seeds not run"), (OutcomeKind.DIVERGED, "undecided: 3 seeds failed")],
)
def test_page_without_finished_trials_has_no_empty_figure(fate: OutcomeKind | None, said: str) -> None:
    seen = shown(study(3, 3, 0, thresholds=(), fate=lambda *_: fate))
    assert said in seen.text
    assert ("arm-1: undecided" in seen.text) == (fate is not None)
    assert "0 of 3 seeds finished" in seen.text
    assert ("9 not ended" in seen.text) == (fate is None)
    assert "mean with 95% interval" not in seen.labels("")
    assert "nan" not in seen.text.casefold().split()


@pytest.mark.usefixtures("undrawn")
def test_only_trials_that_ran_have_cost_something() -> None:
    assert "It cost 80 trials (76 finished, 4 pruned) and " in shown(study(4, 4, 4)).text
    half = shown(study(4, 4, 4, fate=lambda _, seed: OutcomeKind.FINISHED if seed < 2 else None))
    assert re.search(
        r"So far it cost (\d+) of 80 trials \(.* finished, 4 pruned; (\d+) not ended\) and ", half.text
    )
    spared = shown(study(4, 4, 4, fate=lambda _, seed: OutcomeKind.SKIPPED if seed else OutcomeKind.FINISHED))
    assert re.search(r"It cost \d+ of 80 trials \(.*; \d+ skipped\) and ", spared.text)


def test_before_the_first_trial_there_is_a_page() -> None:
    made = replace(study(2, 0, 3, thresholds=()), records=(), measured={})
    assert "Nothing has run yet." in shown(made).text


WRITES = """
import sys
from pathlib import Path
from orchestrator.report.writers.write import write_report_folder
from tests.orchestrator.report.studies import study
made = study(2, 2, 2, thresholds=())
write_report_folder(made.report(), Path(sys.argv[1]), made.details())
"""


@pytest.mark.slow
def test_the_same_records_give_the_same_bytes(tmp_path) -> None:
    """In another process too, where sets come in another order."""
    made = study(2, 2, 2, thresholds=())
    for name in ("one", "two"):
        write_report_folder(made.report(), tmp_path / name, made.details())
    elsewhere = os.environ | {"PYTHONHASHSEED": "3", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", WRITES, str(tmp_path / "three")], env=elsewhere, check=True)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    for name, other in product(files, ("two", "three")):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / other / name).read_bytes(), name


@pytest.mark.usefixtures("undrawn")
def test_the_search_of_every_arm_is_told_from_its_records() -> None:
    made = study(2, 2, 12, thresholds=())
    seen = shown(made)
    for arm in (arm.name for arm in made.plan.arms):
        own = [record for record in made.records if (record.arm, record.phase) == (arm, "search")]
        finished = [record for record in own if record.outcome is OutcomeKind.FINISHED and record.last]
        best = max(finished, key=lambda each: each.last.metrics["valid/accuracy"])
        value = f"{best.last.metrics['valid/accuracy']:.4g}"
        assert f"trial {best.number}: valid/accuracy {value} with train.lr = " in seen.text
        assert f"{value} after 12 trials" in seen.labels(
            f"Best valid/accuracy so far of {arm} against trials"
        )
        hours = sum(record.last.seconds for record in own if record.last) * made.plan.resources.cpus / 3600
        assert f"{value} after {hours:.4g} device hours" in seen.labels(
            f"so far of {arm} against device hours"
        )
        assert f"{len(finished)} finished trials" in seen.labels(f"accuracy of {arm} by train.lr")
        assert seen.labels(f"Importance of dimensions of {arm} by fANOVA: train.lr")
    assert "of 9 finished trials and 3 dimensions: too few to distinguish it from chance" in seen.text


def test_several_objectives_have_a_front_and_its_volume() -> None:
    aims = (Objective(metric="valid/accuracy", goal="max"), Objective(metric="valid/depth", goal="min"))
    seen = shown(study(2, 0, 12, thresholds=(), objectives=aims))
    assert "valid/accuracy against valid/depth of arm-0, the front: " in seen.labels("the front")
    assert "against trials: 0." in seen.labels("Hypervolume of the front of arm-0")
    assert not seen.labels("so far of arm-0 against trials")


@pytest.mark.usefixtures("undrawn")
def test_no_expected_best_with_few_finished_trials() -> None:
    few, more = (shown(study(2, 0, trials, thresholds=())) for trials in (5, 8))
    assert "is expected" not in few.labels("Best valid/accuracy so far of arm-0 against trials")
    assert "of a search of as many trials" in more.labels(
        "Best valid/accuracy so far of arm-0 against trials"
    )
