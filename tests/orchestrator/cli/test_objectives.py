"""Objectives with any metric name, and the scope of reports that counts, from the spec to the report."""

import csv
import json
import re

import pytest

from tests.support.training_code.own_code import forgotten

pytestmark = pytest.mark.usefixtures("untracked")

NAMES_CODE = """
def train(settings, trial):
    x = settings["x"]
    metrics = {"valid/mAP@50": x, "valid/mAP_50": 1 - x, "valid/macro avg/f1-score": x, "valid/точность": x}
    trial.report(1, metrics | {"eval_loss": 1 - x})
"""
CURVES_CODE = """
CURVES = {"overfits": [0.5, 0.9, 0.8, 0.7, 0.6], "steady": [0.5, 0.6, 0.65, 0.68, 0.7]}


def train(settings, trial):
    for epoch, value in enumerate(CURVES[settings["x"]], 1):
        trial.report(epoch, {"valid/accuracy": value})
"""
SPLITLESS_CODE = """
haltsweep = {
    "metrics": {"test_accuracy": {"better": "max", "range": [0, 1]}, "eval_loss": {"better": "min"}}
}


def train(settings, trial):
    test_metrics = {"test_accuracy": 0.5 + settings["x"] / 10 + settings["y"] / 10 + trial.seed % 7 / 1000}
    trial.report(1, {"eval_loss": 1 - settings["x"], "eval_accuracy": settings["x"]} | (
        test_metrics if trial.splits else {}))
"""
CONFIRM_CODE = """
def train(settings, trial):
    trial.report(1, {"accuracy": 0.5 + settings["x"] / 10 + trial.seed % 7 / 1000})
"""
CONFIRM_SPEC = """
name: named
question: Does x matter?
trainable: code_of_ours:train
baseline: {x: 0.1}
arms: {big: {why: more, set: {x: 0.5}}}
confirm: {seeds: 4}
resources: {cpus: 1}
"""
SEARCH_SPEC = """
name: named
question: Does x matter?
trainable: code_of_ours:train
baseline: {x: 0.0}
search: {also: {x: {choice: [0.25, 0.75]}}, sampler: grid, trials_per_arm: 2,
         objectives: [OBJECTIVE]}
resources: {cpus: 1}
"""


@pytest.fixture
def run(tmp_path, haltsweep):
    """Return a function that launches a spec with this code and returns result and report."""

    def launch_spec(code, spec, *, read_report=True):
        (tmp_path / "code_of_ours.py").write_text(code)
        (tmp_path / "named.yaml").write_text(spec)
        result = haltsweep("launch", "named.yaml", "--driver", "inline")
        folder = tmp_path / "runs" / "named" / "report"
        return result, json.loads((folder / "report.json").read_text()) if read_report else {}

    with forgotten(tmp_path):
        yield launch_spec


@pytest.mark.parametrize("metric", ["valid/mAP@50", "valid/macro avg/f1-score", "valid/точность"])
def test_any_metric_name_can_be_an_objective(run, metric):
    result, report = run(
        NAMES_CODE, SEARCH_SPEC.replace("OBJECTIVE", json.dumps({"metric": metric, "goal": "max"}))
    )
    assert result.code == 0, result
    (best,) = report["searched"]
    assert best["values"] == {metric: 0.75}
    assert best["assignment"] == {"x": 0.75}


def test_apparently_reversed_goal_gets_a_warning(run):
    spec = SEARCH_SPEC.replace("OBJECTIVE", "{metric: eval_loss, goal: max}")
    result, report = run(NAMES_CODE, spec)
    assert result.code == 0
    assert report["searched"][0]["assignment"] == {"x": 0.25}
    assert re.search("eval_loss .*max", result.err)


def test_goal_that_contradicts_the_declaration_is_refused(run):
    code = 'haltsweep = {"metrics": {"eval_loss": {"better": "min"}}}\n' + NAMES_CODE
    result, _ = run(
        code, SEARCH_SPEC.replace("OBJECTIVE", "{metric: eval_loss, goal: max}"), read_report=False
    )
    assert result.code == 2
    assert result.err.startswith("named.yaml:7: search.objectives[0].goal: ")


@pytest.mark.parametrize(
    ("scope", "value", "best_choice"),
    [("last", 0.7, "steady"), ("best", 0.9, "overfits"), ("mean-of-last-2", 0.69, "steady")],
)
def test_scope_selects_the_report_that_counts(run, haltsweep, scope, value, best_choice):
    objective = f"{{metric: valid/accuracy, goal: max, scope: {scope}}}"
    spec = SEARCH_SPEC.replace("OBJECTIVE", objective).replace("[0.25, 0.75]", "[overfits, steady]")
    result, report = run(CURVES_CODE, spec.replace("{x: 0.0}", "{x: steady}"))
    assert result.code == 0, result
    (best,) = report["searched"]
    name = "valid/accuracy" if scope == "last" else f"valid/accuracy ({scope})"
    assert best["values"] == {name: pytest.approx(value)}
    assert best["assignment"] == {"x": best_choice}
    assert best["reports"] == (5 if scope == "best" else 1)
    assert report["scopes"] == ({} if scope == "last" else {"valid/accuracy": scope})
    assert f"  x: {best_choice}\n" in haltsweep("best", "named").out
    rows = list(csv.DictReader(haltsweep("records", "named").out.splitlines()))
    column = "metric.valid/accuracy" if scope == "last" else "counted.valid/accuracy"
    assert max(float(row[column]) for row in rows) == pytest.approx(value)
    (arm,) = json.loads(haltsweep("status", "named", "--json").out)["arms"]
    assert arm["best"] == pytest.approx(value)


def test_metric_names_without_a_split_work_from_search_to_report(run):
    spec = SEARCH_SPEC.replace("OBJECTIVE", "{metric: eval_loss, goal: min, split: valid}")
    spec = spec.replace("baseline: {x: 0.0}", "baseline: {x: 0.0, y: 0}\narms: {more: {why: y, set: {y: 1}}}")
    spec += """
confirm: {seeds: 4, splits: [test]}
answer: {metric: test_accuracy, split: test}
published:
  - {arm: baseline, metric: test_accuracy, values: {test: 0.55}, source: Table 1}
"""
    result, report = run(SPLITLESS_CODE, spec)
    assert result.code == 0, result
    assert [verdict["kind"] for verdict in report["verdicts"]] == ["better"]
    assert report["read_in_search"] == []
    assert report["unread"] == []
    cells = {(cell["arm"], cell["metric"]): cell for cell in report["cells"]}
    assert cells["baseline", "test_accuracy"]["published"] == 0.55
    assert cells["baseline", "eval_accuracy"]["estimate"]["mean"] == pytest.approx(0.75)
    assert report["headlines"] == ["test_accuracy"]


def test_metric_name_without_a_split_can_decide_without_a_search(run):
    result, report = run(CONFIRM_CODE, CONFIRM_SPEC)
    assert result.code == 0, result
    (verdict,) = report["verdicts"]
    assert (verdict["metric"], verdict["kind"]) == ("accuracy", "higher")
