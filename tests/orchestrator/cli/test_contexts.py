"""A sweep on two data sets compares arms on each data set and never across data sets."""

import json
import re
from pathlib import Path

import pytest

from tests.support.training_code.own_code import forgotten

pytestmark = pytest.mark.usefixtures("untracked")

TRAINING_CODE = """
def train(settings, trial):
    level = {"easy": 0.9, "hard": 0.4, "odd": 0.6}[settings["dataset"]]
    loss = 0.05 * (not settings["attention"]) + 0.1 * (settings["rate"] - 0.5) ** 2
    value = level - loss + 0.001 * (trial.seed * (1 + settings["attention"]) % 5)
    trial.report(1, {"valid/accuracy": value, **({"test/accuracy": value} if trial.splits else {})})

haltsweep = {"metrics": {"accuracy": {"better": "max", "range": [0, 1]}}}
"""
SPEC = """\
name: datasets
question: Is the arm without attention worse, on each of two data sets?
trainable: job:train
baseline: {dataset: easy, attention: true, rate: 0.5}
arms: {no-attention: {why: none, set: {attention: false}}}
contexts: {dataset: [easy, hard]}
confirm: {seeds: [1, 2, 3, 4], splits: [test]}
answer: {metric: test/accuracy, pool: contexts}
"""
SEARCH = (
    "search={also: {rate: {float: [0, 1]}}, trials_per_arm: 2, sampler: random, "
    "objectives: [{metric: valid/accuracy, goal: max}]}"
)
INLINE = ("--driver", "inline")


@pytest.fixture(autouse=True)
def folder(haltsweep, tmp_path):
    (tmp_path / "job.py").write_text(TRAINING_CODE)
    (tmp_path / "spec.yaml").write_text(SPEC)
    with forgotten(tmp_path):
        yield tmp_path


def load_report():
    return json.loads(Path("runs/datasets/report/report.json").read_text())


def verdict_kinds(report):
    return {row["arm"]: (row["kind"], row["reference"]) for row in (*report["verdicts"], *report["pooled"])}


@pytest.mark.slow
def test_arms_are_compared_on_each_dataset_and_a_context_can_be_added(haltsweep):
    result = haltsweep("launch", "spec.yaml", *INLINE)
    assert result.code == 0, result
    report = load_report()
    assert verdict_kinds(report) == {
        "no-attention[dataset=easy]": ("worse", "baseline[dataset=easy]"),
        "no-attention[dataset=hard]": ("worse", "baseline[dataset=hard]"),
        "no-attention": ("worse", "baseline"),
    }
    assert report["answer"]["family"] == 3
    for row in (*report["verdicts"], *report["pooled"]):
        assert row["difference"]["mean"] == pytest.approx(-0.05)
    verdicts_before = {verdict["arm"]: verdict for verdict in report["verdicts"]}
    extension = haltsweep("extend", "datasets", "contexts.dataset=[easy, hard, odd]", *INLINE)
    assert extension.code == 0, extension
    assert re.search("^datasets: 8 .* 16 ", extension.out, re.MULTILINE)
    report = load_report()
    assert report["answer"]["family"] == 4
    assert verdict_kinds(report).keys() == {*verdicts_before, "no-attention[dataset=odd]", "no-attention"}
    for verdict in report["verdicts"]:
        assert not verdict["exploratory"], "a new data set does not change the verdicts on others"
        if verdict["arm"] in verdicts_before:
            assert verdict["difference"]["mean"] == verdicts_before[verdict["arm"]]["difference"]["mean"]
    assert report["pooled"][0]["exploratory"]


@pytest.mark.slow
def test_each_context_has_a_search_and_a_best_config(haltsweep):
    assert haltsweep("launch", "spec.yaml", SEARCH, *INLINE).code == 0
    report = load_report()
    assert {tally["arm"] for tally in report["tallies"] if tally["assignment"].keys() == {"rate"}} == {
        f"{label}[dataset={context}]"
        for label in ("baseline", "no-attention")
        for context in ("easy", "hard")
    }
    refusal = haltsweep("best", "datasets")
    assert refusal.code == 2
    assert "--context" in refusal.err
    best_result = haltsweep("best", "datasets", "--context", "dataset=hard")
    Path("best.yaml").write_text(best_result.out)
    assert haltsweep("check", "best.yaml").code == 0
