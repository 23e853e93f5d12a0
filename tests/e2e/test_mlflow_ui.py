"""The comparison in the MLflow UI, as `haltsweep ui` opens it, checked against the records."""

import math
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import psutil
import pytest
from scipy import stats

from tests.e2e import mlflow_page
from tests.e2e.pictures import Pictures
from tests.e2e.sweeps import ARMS, Sweep

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
    assert sweep.plan.confirm is not None
    found: dict[str, dict[str, float]] = {}
    splits = sweep.plan.confirm.splits
    for name in [f"{split}/{quantity}" for split in splits for quantity in ("accuracy", "depth")]:
        for arm in sweep.plan.arms:
            values = [
                record.last.metrics[name]
                for record in sweep.records
                if record.phase == "confirm" and record.arm == arm.name and record.last is not None
            ]
            assert len(values) == len(sweep.plan.confirm.seeds)
            mean = statistics.fmean(values)
            spread = statistics.stdev(values) if len(set(values)) > 1 else 0.0
            half = stats.t.ppf(0.975, len(values) - 1) * spread / math.sqrt(len(values))
            numbers = {"": mean, ".n": float(len(values))}
            if half > 0:
                layers = arm.settings["model"].get("max_layers", math.inf)  # planted arms have no bound
                highest = 1.0 if name.endswith("accuracy") else layers
                numbers |= {".ci_low": max(mean - half, 0.0), ".ci_high": min(mean + half, highest)}
            for key, value in numbers.items():
                found.setdefault(name + key, {})[arm.name] = value
    return found


def confirmed_values(sweep: Sweep, field: str) -> dict[str, str]:
    """Return the value of a searched field in the confirm trials of every arm, as MLflow shows it."""
    return {
        record.arm: f"{record.assignment[field]:.3g}" for record in sweep.records if record.phase == "confirm"
    }


def assert_shows(shown: Mapping[str, Mapping[str, str]], wanted: Mapping[str, Mapping[str, float]]) -> None:
    """MLflow shows three decimals."""
    for metric, by_arm in wanted.items():
        for arm, value in by_arm.items():
            assert float(shown[metric][arm]) == pytest.approx(value, abs=0.0005 + 1e-9), (metric, arm)


def test_the_arms_can_be_compared_as_a_user_would(compared: Sweep, pictures: Pictures) -> None:
    name, arms = compared.plan.name, [arm.name for arm in compared.plan.arms]
    with command(name, "--runs", str(compared.folder.root.parent), "--no-browser") as process:
        printed = links(process)
        assert set(printed) >= {"all runs", "arms", "compared"}
        assert all(url.strip().startswith("http://127.0.0.1:") for url in printed.values())
        with mlflow_page.new_browser() as browser, mlflow_page.new_page(browser) as page:
            mlflow_page.open_arms(page, printed["arms"], arms)
            shown = mlflow_page.columns(page)
            pictures.keep("mlflow-arms", mlflow_page.take_arms(page, len(arms)))
            mlflow_page.compare_all(page)
            selected = mlflow_page.read(page)
            page.goto("about:blank")
            page.goto(printed["compared"])
            mlflow_page.wait_for_comparison(page)
            linked = mlflow_page.read(page)
            mlflow_page.show_differences_only(page)
            differing = mlflow_page.read(page).params
            taken = mlflow_page.take_comparison(page, "near-iid/accuracy")
            pictures.keep("mlflow-comparison", taken)
            tab = mlflow_page.open_from_list(page, printed["arms"].partition("/#")[0], name)
            tab.get_by_role("link", name="minus-gate", exact=True).wait_for()
            from_list = mlflow_page.columns(tab)

    answered = [f"answer/{each}" for each in ("estimate", "difference", "p", "n")]
    for column in ("Run Name", *answered, "time/running_seconds"):
        assert column in shown, shown
        assert column in from_list, from_list
    assert min(linked.metrics) == "answer/difference", "primary outcomes sort before all others"
    assert linked.metrics["answer/estimate"] == linked.metrics["near-iid/accuracy"]
    assert linked.runs == tuple(arms), "the baseline first, then in the order of the plan"
    assert set(selected.runs) == set(arms)
    for comparison in (selected, linked):
        assert_shows(comparison.metrics, expected(compared))
    if not pictures.kept:
        wanted = {each: dict(zip(ARMS, values, strict=True)) for each, values in DIFFERING.items()}
        assert differing == wanted | {"model.x": confirmed_values(compared, "model.x")}
    for picture in ("arms", "comparison"):
        assert (pictures.folder / f"mlflow-{picture}.png").stat().st_size > 10_000
