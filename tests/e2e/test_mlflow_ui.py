"""The comparison in the MLflow UI, as `haltsweep ui` opens it, checked against the records."""

import math
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from scipy import stats

from tests.e2e import mlflow_page
from tests.e2e.sweeps import ARMS, SEEDS, SPLITS, Sweep, finished_sweep

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(mlflow_page.missing()), reason=mlflow_page.missing() or "all there"),
]
DIFFERING = {
    "model.gate": ("true", "false", "true", "true"),
    "model.halt": ("", "", "", "null"),
    "model.halt.unit": ("sequence", "sequence", "token", ""),
    "model.shift": ("0.0", "-0.2", "-0.1", "-0.05"),
}


@contextmanager
def command(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """`haltsweep ui` as typed by a user, ended by Ctrl-C; nothing of it may be left running."""
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestrator.cli.main", "ui", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    family: list[psutil.Process] = []
    try:
        yield process
        family = psutil.Process(process.pid).children(recursive=True)
        assert family, "the server runs as a process of its own"
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(60)
        assert process.stdout is not None
        process.stdout.close()
    assert code == 0
    assert [child for child in family if child.is_running()] == []


def links(process: "subprocess.Popen[str]") -> dict[str, str]:
    """What the command prints, once the server answers."""
    assert process.stdout is not None
    found: dict[str, str] = {}
    for line in process.stdout:
        if line.startswith("Ctrl-C"):
            return found
        name, _, url = line.partition(": ")
        found[name] = url.strip()
    raise AssertionError(f"the command must print where to look, got {found}")


def expected(sweep: Sweep) -> dict[str, dict[str, float]]:
    """Metrics of every arm from the records alone, by textbook formulas."""
    found: dict[str, dict[str, float]] = {}
    for name in [f"{split}/{quantity}" for split in SPLITS for quantity in ("accuracy", "depth")]:
        for arm in ARMS:
            values = [
                record.last.metrics[name]
                for record in sweep.records
                if record.phase == "confirm" and record.arm == arm and record.last is not None
            ]
            assert len(values) == len(SEEDS)
            mean = statistics.mean(values)
            half = stats.t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
            numbers = {"": mean, ".n": float(len(values))}
            if half > 0:
                highest = 1.0 if name.endswith("accuracy") else math.inf
                numbers |= {".ci_low": max(mean - half, 0.0), ".ci_high": min(mean + half, highest)}
            for key, value in numbers.items():
                found.setdefault(name + key, {})[arm] = value
    return found


def assert_shows(shown: Mapping[str, Mapping[str, str]], wanted: Mapping[str, Mapping[str, float]]) -> None:
    """MLflow shows three decimals."""
    for metric, by_arm in wanted.items():
        for arm, value in by_arm.items():
            assert float(shown[metric][arm]) == pytest.approx(value, abs=0.0005 + 1e-9), (metric, arm)


def test_the_arms_can_be_compared_as_a_user_would(tmp_path: Path) -> None:
    sweep = finished_sweep(tmp_path / "runs")
    with command("gates", "--runs", str(tmp_path / "runs"), "--no-browser") as process:
        printed = links(process)
        assert set(printed) >= {"all runs", "arms", "compared"}
        assert all(url.strip().startswith("http://127.0.0.1:") for url in printed.values())
        with mlflow_page.browser_page() as page:
            mlflow_page.open_arms(page, printed["arms"], list(ARMS))
            shown = mlflow_page.columns(page)
            mlflow_page.take_arms(page, tmp_path / "arms.png", len(ARMS))
            mlflow_page.compare_all(page)
            selected = mlflow_page.read(page)
            page.goto("about:blank")
            page.goto(printed["compared"])
            mlflow_page.wait_for_comparison(page)
            linked = mlflow_page.read(page)
            mlflow_page.show_differences_only(page)
            differing = mlflow_page.read(page).params
            mlflow_page.take_picture(page, tmp_path / "comparison.png", "near-iid/accuracy")
            tab = mlflow_page.open_from_list(page, printed["arms"].partition("/#")[0], "gates")
            tab.get_by_role("link", name="minus-gate", exact=True).wait_for()
            from_list = mlflow_page.columns(tab)

    for column in ("Run Name", "answer/estimate", "answer/difference", "answer/p", "answer/n"):
        assert column in shown, shown
        assert column in from_list, from_list
    assert (tmp_path / "arms.png").stat().st_size > 10_000
    assert min(linked.metrics) == "answer/difference", "primary outcomes sort before all others"
    assert linked.metrics["answer/estimate"] == linked.metrics[f"{SPLITS[0]}/accuracy"]
    assert linked.runs == tuple(ARMS), "the baseline first, then in the order of the plan"
    assert set(selected.runs) == set(ARMS)
    for comparison in (selected, linked):
        assert_shows(comparison.metrics, expected(sweep))
    assert differing == {name: dict(zip(ARMS, values, strict=True)) for name, values in DIFFERING.items()}
    assert (tmp_path / "comparison.png").stat().st_size > 10_000
