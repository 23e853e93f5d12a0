"""Orchestration seconds per trial, compared with Ray Tune alone and with what a careful user writes.

    python -m tests.benchmarks.orchestration [--trials 200] [--naive-trials 24] [--rounds 2] [--json]

All three run in one call, each in a new process, with two trials at a time, five reports a trial and no other
work, so the whole time is orchestration. Floor and haltsweep take turns, and the least of all rounds counts.

* floor: Ray Tune with a class trainable on reused actors; no Optuna, no MLflow, only what Tune itself writes.
* naive: Ray Tune, OptunaSearch and MLflowLoggerCallback with a function trainable that imports torch.
* ours: five arms, TPE, the ledger at full sync, MLflow on SQLite, Parquet, checkpoints; every trial is a
  process of its own, which has imported torch too.

Measured is `Tuner.fit()`; Ray's start is counted apart. Ours counts in addition the wait, after the last
trial, until MLflow and Parquet hold everything. The rest of `command_s` is imports, making folder and ledger,
and shutting down.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

REPORTS = 5
ARMS = 5
CPUS = 2
WORKLOAD = "tests.benchmarks.orchestration_trial:Quadratic"
MOST_FLOOR, LEAST_NAIVE = 3.0, 20.0


def floor(trials: int, folder: Path) -> dict[str, Any]:
    """Run trials with Ray Tune alone."""
    import ray
    from ray import tune

    class Objective(tune.Trainable):
        def setup(self, config: dict[str, Any]) -> None:
            self.reset_config(config)

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.x, self.reports = new_config["x"], 0
            return True

        def step(self) -> dict[str, Any]:
            self.reports += 1
            return {"loss": (self.x - 0.3) ** 2 + 1 / self.reports, "done": self.reports >= REPORTS}

        def save_checkpoint(self, checkpoint_dir: str) -> None:
            return None

        def load_checkpoint(self, checkpoint: Any) -> None:
            return None

    began = time.perf_counter()
    ray.init(num_cpus=CPUS, include_dashboard=False, log_to_driver=False)
    ray_start_s = time.perf_counter() - began
    began = time.perf_counter()
    grid = tune.Tuner(
        Objective,
        param_space={"x": tune.grid_search([each / trials for each in range(trials)])},
        tune_config=tune.TuneConfig(metric="loss", mode="min", reuse_actors=True, max_concurrent_trials=CPUS),
        run_config=tune.RunConfig(storage_path=str(folder), name="floor", verbose=0),
    ).fit()
    fit_s = time.perf_counter() - began
    assert not grid.errors
    return {"trials": trials, "fit_s": fit_s, "ray_start_s": ray_start_s}


def naive(trials: int, folder: Path) -> dict[str, Any]:
    """Run trials with Ray Tune, Optuna and MLflow as their documentation shows."""
    import optuna
    import ray
    from ray import tune
    from ray.air.integrations.mlflow import MLflowLoggerCallback
    from ray.tune.search.optuna import OptunaSearch

    def objective(config: dict[str, Any]) -> None:
        import torch  # noqa: F401 - every real trainable pays for it, in each new actor

        for report in range(1, REPORTS + 1):
            tune.report({"loss": (config["x"] - 0.3) ** 2 + 1 / report})

    ray.init(num_cpus=CPUS, include_dashboard=False, log_to_driver=False)
    space = {"x": optuna.distributions.FloatDistribution(0, 1)}
    logger = MLflowLoggerCallback(tracking_uri=f"sqlite:///{folder}/mlflow.db", experiment_name="naive")
    began = time.perf_counter()
    grid = tune.Tuner(
        tune.with_resources(objective, {"cpu": 1}),
        tune_config=tune.TuneConfig(
            metric="loss",
            mode="min",
            num_samples=trials,
            search_alg=OptunaSearch(space=space, metric="loss", mode="min"),
            max_concurrent_trials=CPUS,
        ),
        run_config=tune.RunConfig(storage_path=str(folder), name="naive", verbose=0, callbacks=[logger]),
    ).fit()
    fit_s = time.perf_counter() - began
    assert not grid.errors
    return {"trials": trials, "fit_s": fit_s}


def ours(trials: int, folder: Path) -> dict[str, Any]:
    """Run trials with haltsweep and all of its features."""
    from orchestrator.execution.ray.driver import RayDriver
    from orchestrator.execution.sweep import launch
    from orchestrator.execution.sweep.launch_folder import Setup
    from orchestrator.identity import SweepFolder
    from orchestrator.spec.section import Resources
    from orchestrator.tracking.background import Follower
    from orchestrator.trials import OutcomeKind
    from tests.support.specs.plans import make_arm, make_plan

    arms = [make_arm(f"arm-{number}", steps=REPORTS) for number in range(ARMS)]
    plan = make_plan(
        arms, trials_per_arm=trials // ARMS, sampler={"name": "tpe"}, seeds=(), resources=Resources(cpus=1)
    )
    plan = replace(plan, name="ours")
    spans: dict[str, float] = {}
    began = time.perf_counter()
    launch.run_ray = _timed(launch.run_ray, spans, "run_s")
    receive = RayDriver.receive

    def note_first_call(driver: RayDriver) -> Any:
        spans.setdefault("connected_at", time.perf_counter())
        return receive(driver)

    RayDriver.receive = note_first_call  # type: ignore[method-assign]
    Follower.drain = _timed(Follower.drain, spans, "drain_s")  # type: ignore[method-assign]
    # The launch folder is empty, like those of the other contestants, because each trial gets its files.
    launch_folder = folder / "study"
    launch_folder.mkdir()
    tracking = f"sqlite:///{folder}/mlflow.db"
    setup = Setup(folder / "data", WORKLOAD, code=str(launch_folder), tracking_uri=tracking)
    finish = launch.run_sweep(plan, SweepFolder(folder / "ours"), setup, "name: ours\n", num_cpus=CPUS)
    assert finish.counts == {OutcomeKind.FINISHED: len(plan.trials)}
    assert not finish.untracked
    ray_start_s = spans["connected_at"] - spans["run_s_began"]
    return {
        "trials": len(plan.trials),
        "fit_s": spans["run_s"] - ray_start_s,
        "drain_s": spans["drain_s"],
        "ray_start_s": ray_start_s,
        "command_s": time.perf_counter() - began,
    }


def _timed(function: Callable[..., Any], spans: dict[str, float], name: str) -> Callable[..., Any]:
    def timed(*arguments: Any, **keywords: Any) -> Any:
        began = spans[f"{name}_began"] = time.perf_counter()
        try:
            return function(*arguments, **keywords)
        finally:
            spans[name] = time.perf_counter() - began

    return timed


CONTESTANTS = {each.__name__: each for each in (floor, naive, ours)}


def measure(name: str, trials: int) -> dict[str, Any]:
    """Run one contestant in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.benchmarks.orchestration", "--contestant", name]
        command += ["--trials", str(trials), "--folder", folder]
        environment = os.environ | {"RAY_USAGE_STATS_ENABLED": "0"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            raise RuntimeError(f"{name} failed:\n{done.stdout}\n{done.stderr}")
        spans = json.loads(done.stdout.splitlines()[-1])
    counted_s = spans["fit_s"] + spans.get("drain_s", 0.0)
    return {"what": name, **spans, "s_per_trial": counted_s / spans["trials"]}


def _least(rows: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the least value, because other load of the machine only adds time."""
    return min((row for row in rows if row["what"] == name), key=lambda row: row["s_per_trial"])


def table(rows: list[dict[str, Any]]) -> str:
    """Return a Markdown table."""
    by_name = {row["what"]: row["s_per_trial"] for row in rows}
    lines = ["| | trials | s per trial | x floor | naive / this |", "|---|---:|---:|---:|---:|"]
    for row in rows:
        each = row["s_per_trial"]
        lines.append(
            f"| {row['what']} | {row['trials']} | {each:.4f} | {each / by_name['floor']:.2f} "
            f"| {by_name['naive'] / each:.1f} |"
        )
    return "\n".join(lines)


def main() -> int:
    """Return 0 if haltsweep takes at most 3 x the floor and at least 20 x less than naive, else 1."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--naive-trials", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--contestant", choices=CONTESTANTS)
    parser.add_argument("--folder", type=Path)
    args = parser.parse_args()
    if args.contestant:
        print(json.dumps(CONTESTANTS[args.contestant](args.trials, args.folder)))
        return 0
    tried = [measure(name, args.trials) for _ in range(args.rounds) for name in ("floor", "ours")]
    floors, best = (_least(tried, name) for name in ("floor", "ours"))
    rows = [floors, measure("naive", args.naive_trials), best]
    print(json.dumps(rows, indent=2) if args.json else table(rows))
    seconds = {row["what"]: row["s_per_trial"] for row in rows}
    good = (
        seconds["ours"] <= MOST_FLOOR * seconds["floor"] and LEAST_NAIVE * seconds["ours"] <= seconds["naive"]
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
