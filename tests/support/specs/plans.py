"""Small plans without a planner: arms by name, a quadratic to search, every phase."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from orchestrator.identity import derive_seed, digest
from orchestrator.plan.types import AnswerPlan, Arm, ConfirmPlan, Limits, Plan, SearchPlan
from orchestrator.spec.section import Objective, Resources
from orchestrator.trials import PlannedTrial
from search_spaces.dimensions import Dimension, Float, Space
from trainables.protocol import Phase

LINE = Space((Dimension("model.x", Float(0.0, 1.0)),))
SETTINGS: Mapping[str, Any] = {
    "task": {"name": "synthetic"},
    "model": {"x": 0.5, "shift": 0.0},
    "train": {"steps": 4, "fault": None},
}
AT_EVERY_REPORT_S = 1e-9
"""Least time between two checkpoints."""
MAX_SCORE = (Objective(metric="valid/score", goal="max"),)


def make_arm(name: str, space: Space = LINE, **train: Any) -> Arm:
    """An arm of the synthetic workload with some fields of `train` set."""
    settings = {**SETTINGS, "train": {**SETTINGS["train"], **train}}
    return Arm(name, "to be compared", settings, (), space, (), digest(name, settings))


def make_plan(
    arms: Sequence[Arm] | int = 2,
    *,
    trials_per_arm: int = 3,
    sampler: Mapping[str, Any] | str = "random",
    stopper: Mapping[str, Any] | None = None,
    objectives: tuple[Objective, ...] = MAX_SCORE,
    best: int = 1,
    seeds: tuple[int, ...] = (101, 102),
    posthoc: tuple[Mapping[str, Any], ...] = (),
    resources: Resources | None = None,
    wall_clock_hours: float | None = None,
    limits: Limits | None = None,
    answer: AnswerPlan | None = None,
    seed: int = 0,
    continue_on_error: bool = True,
) -> Plan:
    """`trials_per_arm` 0: no search; no `seeds`: no confirm trials; an `answer`: seeds run until decided, and
    arms are compared with the first."""
    named = [make_arm(f"arm-{each}") for each in range(arms)] if isinstance(arms, int) else list(arms)
    if answer is not None:
        named[1:] = [replace(arm, reference=named[0].name) for arm in named[1:]]
    chosen = {"name": sampler} if isinstance(sampler, str) else dict(sampler)
    search = SearchPlan(trials_per_arm, chosen, stopper, objectives, seed) if trials_per_arm else None
    stop: Literal["decided"] | None = "decided" if answer is not None else None
    confirm = ConfirmPlan(best, seeds, ("test",), stop) if seeds else None
    return Plan(
        name="synthetic",
        question="which arm is best?",
        spec_digest=digest("synthetic", seed),
        arms=tuple(named),
        search=search,
        confirm=confirm,
        posthoc=posthoc,
        resources=resources or Resources(checkpoint_seconds=AT_EVERY_REPORT_S),
        wall_clock_hours=wall_clock_hours,
        limits=limits,
        answer=answer,
        continue_on_error=continue_on_error,
        trials=tuple(trial for arm in named for trial in planned(arm, search, confirm, posthoc)),
    )


def planned(
    arm: Arm, search: SearchPlan | None, confirm: ConfirmPlan | None, posthoc: Sequence[Mapping[str, Any]]
) -> list[PlannedTrial]:
    """All trials of one arm: search, then confirm by rank and seed, then posthoc of each of those."""

    def trial(phase: Phase, number: int, seed: int, **more: Any) -> PlannedTrial:
        name = digest(arm.digest, phase, number, seed, more)
        return PlannedTrial(name, arm.name, phase, number, seed, **more)

    searched = [
        trial("search", number, derive_seed(search.seed, "trial", number))
        for number in range(search.trials_per_arm if search else 0)
    ]
    ranks = [(rank, seed) for rank in range(confirm.best) for seed in confirm.seeds] if confirm else []
    confirmed = [trial("confirm", number, seed, rank=rank) for number, (rank, seed) in enumerate(ranks)]
    cells = [(rank, seed, overrides) for rank, seed in ranks for overrides in posthoc]
    reread = [
        trial("posthoc", number, seed, rank=rank, overrides=dict(overrides))
        for number, (rank, seed, overrides) in enumerate(cells)
    ]
    return searched + confirmed + reread
