"""Whole sweeps of arms that do not differ: how often the product decides something all the same.

    python -m tests.orchestrator.statistics.identical_arms FOLDER [--sweeps 40] [--planted 20]

A sweep has a baseline and four arms that set only `label`, which acts on random numbers alone
(`noisy_digits`). It is planned, run by the inline driver and reported as any other sweep. Three designs take
turns: the design of the starter of `haltsweep new own`, whose searches are repeated; one search of each arm
with eight confirm seeds; and the design of the other specs that search. In some sweeps one arm has a planted
effect, which shows the power. FOLDER holds a line of `sweeps.jsonl` for every finished sweep. The same
command continues the study; `--table` only prints the rates of the finished sweeps.
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

HOME = Path(orchestrator.__file__).parent
STARTER = HOME / "starters/digits.yaml"
LONGER = HOME.parent / "experiments/gut-ablation-listops.yaml"
TRAINABLE = "tests.orchestrator.statistics.noisy_digits:train"
SPACE = {"lr": {"float": [0.1, 2.0], "log": True}, "decay": {"float": [1e-4, 0.03], "log": True}}
ARMS = 4
HANDICAP = 0.04
"""The planted effect: about two standard deviations of the test accuracy over seeds at good settings."""
UNDECIDED = frozenset({"undecided", "no difference"})


@dataclass(frozen=True)
class Design:
    """How every arm of a sweep is searched and confirmed."""

    name: str
    repeats: int
    trials: int
    """Number of trials of each search."""
    seeds: int
    """Of each repeat."""


def design_of(name: str, spec_file: Path) -> Design:
    """Return the design of a spec that repeats its searches."""
    written = yaml.safe_load(spec_file.read_text(encoding="utf-8"))
    search = written["search"]
    return Design(name, search["repeats"], search["trials_per_arm"], written["confirm"]["seeds"])


def designs() -> list[Design]:
    """Return all designs, in the order in which they take turns."""
    return [design_of("repeats", STARTER), Design("one search", 1, 6, 8), design_of("more repeats", LONGER)]


@dataclass(frozen=True)
class Outcome:
    """What a finished sweep decided."""

    design: str
    planted: bool
    number: int
    kinds: dict[str, str]
    """Kind of the verdict by arm."""
    p: dict[str, float | None]


def spec(design: Design, number: int, *, planted: bool) -> dict[str, Any]:
    """Return the spec of a sweep; all random numbers depend on `number`."""
    arms = {f"same-{label}": {"set": {"label": label}} for label in range(1, ARMS + 1)}
    if planted:
        arms["same-1"]["set"]["handicap"] = HANDICAP
    return {
        "name": f"{design.name.replace(' ', '-')}-{'planted' if planted else 'null'}-{number}",
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
        "confirm": {"seeds": [100 * number + place for place in range(design.seeds)], "splits": ["test"]},
    }


def outcome(report: Report, design: Design, number: int, *, planted: bool) -> Outcome:
    """Return what the report of a finished sweep says of every arm."""
    return Outcome(
        design.name,
        planted,
        number,
        {verdict.arm: verdict.kind for verdict in report.verdicts},
        {verdict.arm: verdict.p for verdict in report.verdicts},
    )


def run(folder: Path, design: Design, number: int, *, planted: bool) -> Outcome:
    """Launch or continue a sweep, and delete it once its outcome is known."""
    asked = spec(design, number, planted=planted)
    sweep = SweepFolder(folder / "runs" / asked["name"])
    with interrupts():
        if sweep.plan.is_file():
            result = resume_sweep(sweep, driver="inline")
        else:
            file = folder / "spec.yaml"
            file.write_text(yaml.safe_dump(asked), encoding="utf-8")
            source, plan = plan_file(file)
            setup = Setup(folder / "data", TRAINABLE, code=str(folder / "work"), driver="inline")
            result = run_sweep(plan, sweep, setup, to_yaml(source.spec), driver="inline")
    if result.exit_code:
        raise RuntimeError(f"the sweep {asked['name']} ended with exit code {result.exit_code}")
    found = outcome(read.report(str(sweep.root)), design, number, planted=planted)
    shutil.rmtree(sweep.root)
    return found


def study(folder: Path, compared: list[Design], sweeps: int, planted: int) -> None:
    """Run all sweeps that have not finished; the compared designs take turns."""
    (folder / "work").mkdir(parents=True, exist_ok=True)
    os.chdir(folder / "work")  # trials find nothing to link in their launch folder
    done = {(outcome.design, outcome.planted, outcome.number) for outcome in outcomes(folder)}
    for number in range(max(sweeps, planted)):
        for has_effect, most in ((False, sweeps), (True, planted)):
            for design in compared:
                if number < most and (design.name, has_effect, number) not in done:
                    result = run(folder, design, number, planted=has_effect)
                    with (folder / "sweeps.jsonl").open("a", encoding="utf-8") as file:
                        file.write(json.dumps(asdict(result)) + "\n")


def outcomes(folder: Path) -> list[Outcome]:
    """Return the outcomes of the sweeps that have finished."""
    file = folder / "sweeps.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [Outcome(**json.loads(line)) for line in lines]


def table(found: list[Outcome]) -> Iterator[str]:
    """Yield a Markdown table: a row a design, without and with a planted effect."""
    yield "| design | planted effect | sweeps | sweeps with a false decision | effect found |"
    yield "|---|---|---|---|---|"
    for design, planted in sorted({(each.design, each.planted) for each in found}):
        rows = [each.kinds for each in found if (each.design, each.planted) == (design, planted)]
        null = [{arm: kind for arm, kind in row.items() if not planted or arm != "same-1"} for row in rows]
        false = sum(any(kind not in UNDECIDED for kind in row.values()) for row in null)
        power = _rate(sum(row["same-1"] == "worse" for row in rows), len(rows)) if planted else ""
        yield (
            f"| {design} | {'one arm of four' if planted else 'none'} | {len(rows)} "
            f"| {_rate(false, len(rows))} | {power} |"
        )


def _rate(count: int, of: int) -> str:
    low, high = rate_interval(count, of)
    return f"{count} ({count / of:.2f} [{low:.2f}, {high:.2f}])"


def main() -> None:
    """Run the study, or print the rates of the sweeps that have finished."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sweeps", type=int, default=40, help="of each design, without an effect")
    parser.add_argument("--planted", type=int, default=20, help="of each design, with a planted effect")
    parser.add_argument("--table", action="store_true", help="print rates; run nothing")
    args = parser.parse_args()
    folder = args.folder.resolve()
    if not args.table:
        multiprocessing.set_forkserver_preload([TRAINABLE.partition(":")[0]])
        child_servers.install()  # servers of trials are forks: a sweep need not import everything anew
        study(folder, designs(), args.sweeps, args.planted)
    for line in table(outcomes(folder)):
        print(line)


if __name__ == "__main__":
    main()
