"""Run sweeps of identical arms and count false decisions.

    python -m tests.orchestrator.statistics.identical_arms FOLDER [--sweeps 40] [--planted 20]

A sweep has a baseline and four arms that set only `label`, which affects only random numbers
(`noisy_digits`). The inline driver runs the sweep, and haltsweep reports it like any other sweep. Sweeps
take turns with three designs. The first is that of the starter of `haltsweep new own`, which repeats its
searches. The second has one search per arm and eight confirm seeds, and the third is that of the other specs
with a search. In some sweeps one arm has a true effect, which shows the power.

`sweeps.jsonl` in FOLDER has one line per finished sweep. The same command continues the study; `--table`
only prints the rates of the finished sweeps.
"""

import argparse
import json
import multiprocessing
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml

import orchestrator
from orchestrator import read
from orchestrator.execution.signals import interrupts
from orchestrator.execution.sweep.launch import resume_sweep, run_sweep
from orchestrator.execution.sweep.launch_folder import Setup
from orchestrator.identity import SweepFolder
from orchestrator.plan.planner import plan_file
from orchestrator.report.results.statistics import rate_interval
from orchestrator.report.results.types import Report
from orchestrator.spec.load import to_yaml
from tests.support.processes import child_servers

PACKAGE = Path(orchestrator.__file__).parent
STARTER_SPEC = PACKAGE / "starters/digits.yaml"
LONGER_SPEC = PACKAGE.parent / "experiments/gut-ablation-listops.yaml"
TRAINABLE = "tests.orchestrator.statistics.noisy_digits:train"
SPACE = {"lr": {"float": [0.1, 2.0], "log": True}, "decay": {"float": [1e-4, 0.03], "log": True}}
ARMS = 4
HANDICAP = 0.04
"""The true effect: about two standard deviations of the test accuracy over seeds at good params."""
NO_EFFECT_KINDS = frozenset({"undecided", "no difference"})


@dataclass(frozen=True)
class Design:
    """Number of searches, trials and seeds of every arm of a sweep."""

    name: str
    repeats: int
    trials: int
    """Number of trials of each search."""
    seeds: int
    """Number of confirm seeds of each repeat."""


def read_design(name: str, spec_file: Path) -> Design:
    """Return the design of a spec that repeats its searches."""
    spec = yaml.safe_load(spec_file.read_text(encoding="utf-8"))
    search = spec["search"]
    return Design(name, search["repeats"], search["trials_per_arm"], spec["confirm"]["seeds"])


def list_designs() -> list[Design]:
    """Return all designs in the order of their turns."""
    return [
        read_design("repeats", STARTER_SPEC),
        Design("one search", 1, 6, 8),
        read_design("more repeats", LONGER_SPEC),
    ]


@dataclass(frozen=True)
class Outcome:
    """The verdicts of a finished sweep."""

    design: str
    planted: bool
    number: int
    kinds: dict[str, str]
    """Kind of the verdict by arm."""
    p: dict[str, float | None]


def make_spec(design: Design, number: int, *, has_effect: bool) -> dict[str, Any]:
    """Return the spec of a sweep; all random numbers depend on `number`."""
    arms = {f"same-{label}": {"set": {"label": label}} for label in range(1, ARMS + 1)}
    if has_effect:
        arms["same-1"]["set"]["handicap"] = HANDICAP
    return {
        "name": f"{design.name.replace(' ', '-')}-{'planted' if has_effect else 'null'}-{number}",
        "question": "Do arms differ that are the same?",
        "trainable": TRAINABLE,
        "baseline": {"label": 0, "handicap": 0.0, "lr": 0.5, "decay": 0.001},
        "arms": {name: {"why": "the same under another label", **arm} for name, arm in arms.items()},
        "search": {
            "also": SPACE,
            "trials_per_arm": design.trials,
            "repeats": design.repeats,
            "objectives": [{"metric": "valid/accuracy", "goal": "max"}],
            "seed": number,
        },
        "confirm": {"seeds": [100 * number + index for index in range(design.seeds)], "splits": ["test"]},
    }


def make_outcome(report: Report, design: Design, number: int, *, has_effect: bool) -> Outcome:
    """Return the verdicts of the report of a finished sweep."""
    return Outcome(
        design.name,
        has_effect,
        number,
        {verdict.arm: verdict.kind for verdict in report.verdicts},
        {verdict.arm: verdict.p for verdict in report.verdicts},
    )


def run_sweep_once(folder: Path, design: Design, number: int, *, has_effect: bool) -> Outcome:
    """Launch or continue a sweep, and delete it after its end."""
    spec = make_spec(design, number, has_effect=has_effect)
    sweep = SweepFolder(folder / "runs" / spec["name"])
    with interrupts():
        if sweep.plan.is_file():
            result = resume_sweep(sweep, driver="inline")
        else:
            file = folder / "spec.yaml"
            file.write_text(yaml.safe_dump(spec), encoding="utf-8")
            source, plan = plan_file(file)
            setup = Setup(folder / "data", TRAINABLE, code=str(folder / "work"), driver="inline")
            result = run_sweep(plan, sweep, setup, to_yaml(source.spec), driver="inline")
    if result.exit_code:
        raise RuntimeError(f"the sweep {spec['name']} ended with exit code {result.exit_code}")
    outcome = make_outcome(read.report(str(sweep.root)), design, number, has_effect=has_effect)
    shutil.rmtree(sweep.root)
    return outcome


def run_study(folder: Path, designs: list[Design], sweeps: int, num_with_effect: int) -> None:
    """Run all sweeps that have not finished; the designs take turns."""
    (folder / "work").mkdir(parents=True, exist_ok=True)
    os.chdir(folder / "work")  # an empty folder, because trials link the files of the launch folder
    finished = {(outcome.design, outcome.planted, outcome.number) for outcome in read_outcomes(folder)}
    for number in range(max(sweeps, num_with_effect)):
        for has_effect, limit in ((False, sweeps), (True, num_with_effect)):
            for design in designs:
                if number < limit and (design.name, has_effect, number) not in finished:
                    result = run_sweep_once(folder, design, number, has_effect=has_effect)
                    with (folder / "sweeps.jsonl").open("a", encoding="utf-8") as file:
                        file.write(json.dumps(asdict(result)) + "\n")


def read_outcomes(folder: Path) -> list[Outcome]:
    """Return the outcomes of the sweeps that have finished."""
    file = folder / "sweeps.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [Outcome(**json.loads(line)) for line in lines]


def make_table(outcomes: list[Outcome]) -> Iterator[str]:
    """Yield a Markdown table with one row per design, without and with a true effect."""
    yield "| design | planted effect | sweeps | sweeps with a false decision | effect found |"
    yield "|---|---|---|---|---|"
    for design, has_effect in sorted({(outcome.design, outcome.planted) for outcome in outcomes}):
        rows = [
            outcome.kinds for outcome in outcomes if (outcome.design, outcome.planted) == (design, has_effect)
        ]
        null_rows = [
            {arm: kind for arm, kind in row.items() if not has_effect or arm != "same-1"} for row in rows
        ]
        num_false = sum(any(kind not in NO_EFFECT_KINDS for kind in row.values()) for row in null_rows)
        power = _format_rate(sum(row["same-1"] == "worse" for row in rows), len(rows)) if has_effect else ""
        yield (
            f"| {design} | {'one arm of four' if has_effect else 'none'} | {len(rows)} "
            f"| {_format_rate(num_false, len(rows))} | {power} |"
        )


def _format_rate(count: int, total: int) -> str:
    low, high = rate_interval(count, total)
    return f"{count} ({count / total:.2f} [{low:.2f}, {high:.2f}])"


def main() -> None:
    """Run the study, or print the rates of the sweeps that have finished."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sweeps", type=int, default=40, help="sweeps of each design without an effect")
    parser.add_argument("--planted", type=int, default=20, help="sweeps of each design with a true effect")
    parser.add_argument("--table", action="store_true", help="print rates; run nothing")
    args = parser.parse_args()
    folder = args.folder.resolve()
    if not args.table:
        multiprocessing.set_forkserver_preload([TRAINABLE.partition(":")[0]])
        child_servers.install()  # trial servers are forks, so that no sweep imports the packages again
        run_study(folder, list_designs(), args.sweeps, args.planted)
    for line in make_table(read_outcomes(folder)):
        print(line)


if __name__ == "__main__":
    main()
