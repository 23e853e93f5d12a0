"""Custom training code with missing or invalid metrics causes clear messages."""

import re

import pytest
from markdown_it import MarkdownIt

from orchestrator import read
from orchestrator.report.caveats.warning_texts import warning_texts
from tests.support.training_code.own_code import forgotten

pytestmark = pytest.mark.usefixtures("untracked")

CODE = """
score = {"better": "max", "range": [0, 1], "meaning": "share\\n\\n| of | <b>all</b>"}
haltsweep = {"metrics": {"score": score}}


def train(settings, trial):
    found = {"valid/score": settings["lr"] * settings["scale"]}
    found |= {f"{split}/score": 0.5 for split in trial.splits[: settings["reads"]]}
    trial.report(1, found)
"""
SPEC = """
name: others
question: Is it reported?
trainable: theirs:train
baseline: {lr: 0.5, scale: 1.0, reads: 9}
arms: {half: {why: half as good, set: {scale: 0.5}}}
resources: {cpus: 1}
"""
SEARCH = """
search:
  also: {lr: {choice: [0.1, 0.4, 0.2]}}
  sampler: grid
  trials_per_arm: 3
  objectives: [{metric: valid/score, goal: max}]
"""
CONFIRM = "confirm: {seeds: [1, 2], splits: [near, far]}\n"


@pytest.fixture
def folder(tmp_path):
    with forgotten(tmp_path):
        (tmp_path / "theirs.py").write_text(CODE)
        yield tmp_path


def launch_and_read_report(folder, haltsweep, spec):
    (folder / "others.yaml").write_text(spec)
    answer = haltsweep("launch", "others.yaml", "--driver", "inline")
    assert "Traceback" not in answer.err
    return answer, (folder / "runs" / "others" / "report" / "report.md").read_text()


def test_search_without_confirm_shows_best_params_without_claims(folder, haltsweep):
    answer, page = launch_and_read_report(folder, haltsweep, SPEC + SEARCH)
    assert answer.code == 0, answer
    output = " ".join(answer.out.split())
    assert "exploratory" in output
    assert "baseline │ 3 │ 0.400 │ lr=0.4" in output
    assert "half │ 3 │ 0.200 │ lr=0.4" in output
    assert "| half | 3 | 0.200 | lr=0.4 |" in page


def test_unmeasured_test_splits_are_named(folder, haltsweep):
    answer, page = launch_and_read_report(folder, haltsweep, SPEC.replace("reads: 9", "reads: 1") + CONFIRM)
    report = read.report("others")
    assert report.unread == ("far",)
    (warning,) = [text for text in warning_texts(report) if " far" in text]
    for text in (answer.err, page, haltsweep("report", "others").err):
        assert warning[:40] in text
    logged = haltsweep("logs", "others", "baseline/confirm/0")
    assert " far" in logged.out + logged.err


def test_measured_splits_are_not_named_and_metric_descriptions_are_escaped(folder, haltsweep):
    answer, page = launch_and_read_report(folder, haltsweep, SPEC + CONFIRM)
    assert answer.code == 0, answer
    assert read.report("others").unread == ()
    html = MarkdownIt("commonmark", {"html": True}).enable("table").render(page)
    assert "<b>" not in html
    assert "<strong>score (share  | of | &lt;b&gt;all&lt;/b&gt;)" in html


def test_value_outside_its_declared_range_crashes_its_trial(folder, haltsweep):
    answer, page = launch_and_read_report(
        folder, haltsweep, SPEC.replace("scale: 1.0", "scale: 100") + SEARCH
    )
    assert answer.code == 1
    assert "crashed" in answer.out
    status = haltsweep("status", "others")
    assert re.search("valid/score .* 0 to 1.*got 40", " ".join((status.out + status.err).split()))
    assert "40.000" not in page


CACHING_CODE = """
import json
from pathlib import Path

CACHE = Path(__file__).parent / "scores.json"


def train(settings, trial):
    if not CACHE.exists():
        CACHE.write_text(json.dumps(settings["lr"] * settings["scale"]))
    trial.report(1, {f"{split}/score": json.loads(CACHE.read_text()) for split in trial.splits})
"""


DATABASE_CODE = """
import sqlite3
from pathlib import Path


def train(settings, trial):
    with sqlite3.connect(Path(__file__).parent / "scores.db") as database:
        database.execute("create table if not exists scores (score)")
        database.execute("insert into scores values (0.5)")
        [(score,)] = database.execute("select avg(score) from scores")
    trial.report(1, {f"{split}/score": score for split in trial.splits})
"""


@pytest.mark.parametrize(
    ("code", "name"), [(CACHING_CODE, "scores.json"), (DATABASE_CODE, "scores.db")], ids=["file", "database"]
)
def test_results_read_from_a_file_of_another_trial_are_named(folder, haltsweep, code, name):
    (folder / "theirs.py").write_text(code)
    answer, page = launch_and_read_report(folder, haltsweep, SPEC + CONFIRM)
    for text in (answer.err, page):
        assert re.search(f"3 trials .*: {name}", " ".join(text.split()))
