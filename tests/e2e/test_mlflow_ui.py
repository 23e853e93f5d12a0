"""The comparison in the MLflow UI, opened by `haltsweep ui`, equals the records."""

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
    pytest.mark.skipif(
        bool(mlflow_page.missing_dependency()),
        reason=mlflow_page.missing_dependency() or "no dependency is missing",
    ),
]
DIFFERING_PARAMS = {
    "model.gate": ("true", "false", "true", "true"),
    "model.halt": ("", "", "", "null"),
    "model.halt.unit": ("sequence", "sequence", "token", ""),
    "model.shift": ("0.0", "-0.2", "-0.1", "-0.05"),
}


@contextmanager
def ui_process(*arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """Run `haltsweep ui`, end it by Ctrl-C, and check that no process of it is left."""
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestrator.cli.main", "ui", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    children: list[psutil.Process] = []
    try:
        yield process
        children = psutil.Process(process.pid).children(recursive=True)
        assert children, "the server must run in a separate process"
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(60)
        process.stdout.close()
    assert code == 0
    assert [child for child in children if child.is_running()] == []


def read_links(process: "subprocess.Popen[str]") -> dict[str, str]:
    """Return the links that the command prints once the server answers."""
    assert process.stdout is not None
    links: dict[str, str] = {}
    for line in process.stdout:
        if line.startswith("Ctrl-C"):
            return links
        name, _, url = line.partition(": ")
        links[name] = url.strip()
    raise AssertionError(f"the command must print where to look, got {links}")


def expected_metrics(sweep: Sweep) -> dict[str, dict[str, float]]:
    """Compute the metrics of every arm from the records, by textbook formulas."""
    metrics: dict[str, dict[str, float]] = {}
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
            half_width = stats.t.ppf(0.975, len(values) - 1) * spread / math.sqrt(len(values))
            numbers = {"": mean, ".n": float(len(values))}
            if half_width > 0:
                layers = arm.settings["model"].get("max_layers", math.inf)  # invented arms have no bound
                highest = 1.0 if name.endswith("accuracy") else layers
                numbers |= {
                    ".ci_low": max(mean - half_width, 0.0),
                    ".ci_high": min(mean + half_width, highest),
                }
            for key, value in numbers.items():
                metrics.setdefault(name + key, {})[arm.name] = value
    return metrics


def confirmed_values(sweep: Sweep, field: str) -> dict[str, str]:
    """Return the value of a searched field in the confirm trials of every arm, as MLflow shows it."""
    return {
        record.arm: f"{record.assignment[field]:.3g}" for record in sweep.records if record.phase == "confirm"
    }


def assert_shows(
    displayed: Mapping[str, Mapping[str, str]], expected: Mapping[str, Mapping[str, float]]
) -> None:
    """Compare metrics with the three decimals that MLflow shows."""
    for metric, by_arm in expected.items():
        for arm, value in by_arm.items():
            assert float(displayed[metric][arm]) == pytest.approx(value, abs=0.0005 + 1e-9), (metric, arm)


def test_mlflow_ui_compares_the_arms(comparison_sweep: Sweep, pictures: Pictures) -> None:
    name, arms = comparison_sweep.plan.name, [arm.name for arm in comparison_sweep.plan.arms]
    with ui_process(name, "--runs", str(comparison_sweep.folder.root.parent), "--no-browser") as process:
        printed = read_links(process)
        assert len(printed) == 3
        assert all(url.strip().startswith("http://127.0.0.1:") for url in printed.values())
        with mlflow_page.new_browser() as browser, mlflow_page.new_page(browser) as page:
            mlflow_page.open_arms(page, printed["arms"], arms)
            headers = mlflow_page.column_headers(page)
            pictures.save("mlflow-arms", mlflow_page.take_arms(page, len(arms)))
            mlflow_page.compare_all(page)
            selected = mlflow_page.read_comparison(page)
            page.goto("about:blank")
            page.goto(printed["compared"])
            mlflow_page.wait_for_comparison(page)
            linked = mlflow_page.read_comparison(page)
            mlflow_page.show_differences_only(page)
            differing = mlflow_page.read_comparison(page).params
            picture_bytes = mlflow_page.take_comparison(page, "near-iid/accuracy")
            pictures.save("mlflow-comparison", picture_bytes)

    assert {"answer/estimate", "answer/difference", "answer/p"} <= {*headers}
    assert min(linked.metrics) == "answer/difference", "primary outcomes must sort before all others"
    assert linked.metrics["answer/estimate"] == linked.metrics["near-iid/accuracy"]
    assert linked.runs == tuple(arms), "the baseline must come first, then the arms in the order of the plan"
    assert set(selected.runs) == set(arms)
    for comparison in (selected, linked):
        assert_shows(comparison.metrics, expected_metrics(comparison_sweep))
    if not pictures.is_published:
        expected = {name_: dict(zip(ARMS, values, strict=True)) for name_, values in DIFFERING_PARAMS.items()}
        assert differing == expected | {"model.x": confirmed_values(comparison_sweep, "model.x")}
    for picture in ("arms", "comparison"):
        assert (pictures.folder / f"mlflow-{picture}.png").stat().st_size > 10_000
