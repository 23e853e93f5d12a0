"""Small plans made without the planner: arms by name, a quadratic objective to search, every phase."""

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
"""Minimum time between two checkpoints, so short that every report writes one."""
MAX_SCORE = (Objective(metric="valid/score", goal="max"),)


def make_arm(name: str, space: Space = LINE, **train: Any) -> Arm:
    """Return an arm of the synthetic workload with some fields of `train` changed."""
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
    """Return a plan; `trials_per_arm` 0 plans no search, and no `seeds` plan no confirmation.

    With an `answer`, seeds run until the answer is decided, and every arm is compared with the first one.
    """
    arm_list = [make_arm(f"arm-{number}") for number in range(arms)] if isinstance(arms, int) else list(arms)
    if answer is not None:
        arm_list[1:] = [replace(arm, reference=arm_list[0].name) for arm in arm_list[1:]]
    sampler_settings = {"name": sampler} if isinstance(sampler, str) else dict(sampler)
    search = (
        SearchPlan(trials_per_arm, sampler_settings, stopper, objectives, seed) if trials_per_arm else None
    )
    stop: Literal["decided"] | None = "decided" if answer is not None else None
    confirm = ConfirmPlan(best, seeds, ("test",), stop) if seeds else None
    return Plan(
        name="synthetic",
        question="which arm is best?",
        spec_digest=digest("synthetic", seed),
        arms=tuple(arm_list),
        search=search,
        confirm=confirm,
        posthoc=posthoc,
        resources=resources or Resources(checkpoint_seconds=AT_EVERY_REPORT_S),
        wall_clock_hours=wall_clock_hours,
        limits=limits,
        answer=answer,
        continue_on_error=continue_on_error,
        trials=tuple(trial for arm in arm_list for trial in planned(arm, search, confirm, posthoc)),
    )


def planned(
    arm: Arm, search: SearchPlan | None, confirm: ConfirmPlan | None, posthoc: Sequence[Mapping[str, Any]]
) -> list[PlannedTrial]:
    """Return all trials of one arm: search, then confirm by rank and seed, then posthoc of each of these."""

    def trial(phase: Phase, number: int, seed: int, **fields: Any) -> PlannedTrial:
        name = digest(arm.digest, phase, number, seed, fields)
        return PlannedTrial(name, arm.name, phase, number, seed, **fields)

    search_trials = [
        trial("search", number, derive_seed(search.seed, "trial", number))
        for number in range(search.trials_per_arm if search else 0)
    ]
    ranks = [(rank, seed) for rank in range(confirm.best) for seed in confirm.seeds] if confirm else []
    confirm_trials = [trial("confirm", number, seed, rank=rank) for number, (rank, seed) in enumerate(ranks)]
    cells = [(rank, seed, overrides) for rank, seed in ranks for overrides in posthoc]
    posthoc_trials = [
        trial("posthoc", number, seed, rank=rank, overrides=dict(overrides))
        for number, (rank, seed, overrides) in enumerate(cells)
    ]
    return search_trials + confirm_trials + posthoc_trials
