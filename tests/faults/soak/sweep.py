"""The sweep of one round and the process that runs it: `python -m tests.faults.soak.sweep ROOT`.

What to run stands in ROOT/round.json; what came of it is left in ROOT/finish.json.
"""

import json
import os
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator.plan.types import Plan
from orchestrator.spec.section import Resources
from tests.faults.kills.chaos import Place, go
from tests.faults.soak.schedule import SCENES, Scene
from tests.support.specs.plans import make_arm, make_plan

TOLD = "round.json"
FINISH = "finish.json"
STEPS = 12
STEPS_RAY = 30
RETRIES = 10_000
"""Nobody is given up for having been killed too often."""


@dataclass(frozen=True)
class Told:
    """What a launcher is told."""

    scene: str
    sweep: str
    """Its name."""
    trials_per_arm: int
    storage: str | None
    tracking_uri: str | None

    @classmethod
    def at(cls, root: Path) -> "Told":
        """As written below `root`."""
        return cls(**json.loads((root / TOLD).read_text()))

    def write(self, root: Path) -> None:
        """For the launchers to come."""
        root.mkdir(parents=True, exist_ok=True)
        (root / TOLD).write_text(json.dumps(asdict(self)))

    def plan(self) -> Plan:
        """The sweep."""
        return plan(SCENES[self.scene], self.sweep, self.trials_per_arm)

    def place(self, root: Path) -> Place:
        """Where it is."""
        return Place(root, self.plan(), self.tracking_uri, self.storage)


def plan(scene: Scene, name: str, trials_per_arm: int) -> Plan:
    """Every phase; one trial at a time also with a sampler that learns and an early stopper."""
    steps = STEPS_RAY if scene.ray else STEPS
    more: dict[str, Any] = {"tally": True, "hold": True, "steps": steps, "sleep_s": scene.sleep_s}
    arms = [make_arm(each, label=each, **more) for each in ("one", "two")]
    learning = {"name": "tpe", "n_startup_trials": 1}
    stopper = {"name": "asha", "grace_steps": 4, "reduction": 2}
    made = make_plan(
        arms,
        trials_per_arm=trials_per_arm,
        sampler="random" if scene.ray else learning,
        stopper=None if scene.ray else stopper,
        seeds=(7, 8),
        posthoc=({"model.shift": 0.5},),
        resources=Resources(checkpoint_seconds=scene.checkpoint_s, retries=RETRIES),
    )
    return replace(made, name=name)


def trials_for(scene: Scene, kills: int) -> int:
    """How many trials an arm needs, that the sweep may not be over before the last kill."""
    steps = STEPS_RAY if scene.ray else STEPS // 2
    return max(2, round(kills * scene.steps_between / (2 * steps)))


def session(root: Path) -> None:
    """Launch or resume, to the end."""
    shown = Told.at(root)
    place = shown.place(root)
    place.data.mkdir(parents=True, exist_ok=True)
    ray = SCENES[shown.scene].ray
    finish = go(place, "ray" if ray else "inline", **({"num_cpus": SCENES[shown.scene].slots} if ray else {}))
    fresh = root / f".{FINISH}.{os.getpid()}"
    fresh.write_text(
        json.dumps({"left": finish.left, "code": finish.exit_code, "untracked": finish.untracked})
    )
    fresh.rename(root / FINISH)


if __name__ == "__main__":
    session(Path(sys.argv[1]))
