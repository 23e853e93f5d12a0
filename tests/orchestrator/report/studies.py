"""Synthetic studies with searches, seeds, thresholds, curves and failures for report tests."""

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.plan.types import AnswerPlan, Arm, ArmCheck, Change, ConfirmPlan, Plan, SearchPlan
from orchestrator.report.results.details import Details, details
from orchestrator.report.results.summary import summarise
from orchestrator.report.results.types import Report
from orchestrator.spec.section import Objective, Resources
from orchestrator.trials import OutcomeKind, PlannedTrial, Record
from search_spaces.dimensions import Choice, Dimension, Float, Int, Space
from trainables.metrics import Metric
from trainables.protocol import Measurement

METRICS = (
    Metric(
        *("accuracy", "max"),
        low=0.0,
        high=1.0,
        floor=0.1,
        meaning="share of right answers",
        shown=("table", "headline", "posthoc", "figure"),
    ),
    Metric(
        *("depth",),
        unit="layers",
        low=0.0,
        is_cost=True,
        meaning="layers run",
        shown=("table", "beside", "posthoc", "figure"),
        moves_with="depth",
    ),
    *(Metric(f"depth_p{part}", unit="layers", low=0.0, shown=(), moves_with="depth") for part in (10, 90)),
    Metric("loss", "min", unit="nats", low=0.0, shown=("table",)),
)
SPACE = Space(
    (
        Dimension("train.lr", Float(1e-4, 1e-1, log=True)),
        Dimension("model.layers", Int(2, 12)),
        Dimension("model.gate", Choice((True, False))),
    )
)
SPLITS = ("near-iid", "length-20-40")
THRESHOLD = "model.halt.threshold"
STEPS = tuple(range(50, 301, 50))


@dataclass(frozen=True)
class Study:
    """A plan with its records and measurements."""

    plan: Plan
    records: tuple[Record, ...]
    measured: Mapping[str, Sequence[Measurement]]

    def report(self) -> Report:
        """Return the report of the study."""
        return summarise(self.plan, self.records)

    def details(self) -> Details:
        """Return the details of the page."""
        return details(self.plan, self.report(), self.records, self.measured)


def make_study(
    arms: int | Sequence[str] = 4,
    seeds: int = 5,
    trials: int = 12,
    *,
    thresholds: Sequence[float] = (0.3, 0.6, 0.9),
    outcome_of: Any = lambda arm, seed: OutcomeKind.FINISHED,
    objectives: tuple[Objective, ...] = (Objective(metric="valid/accuracy", goal="max"),),
) -> Study:
    """Build a study; `outcome_of(arm_index, seed_index)` gives the end of a confirm trial, or None."""
    names = [f"arm-{place}" for place in range(arms)] if isinstance(arms, int) else list(arms)
    plan = _make_plan(names, seeds, trials, thresholds, objectives)
    records, measurements = [], {}
    for trial in plan.trials:
        record, curve = _make_record(plan, trial, names.index(trial.arm), outcome_of)
        if record is not None:
            records.append(record)
            measurements[trial.trial_id] = curve
    return Study(plan, tuple(records), measurements)


def _make_plan(
    names: Sequence[str],
    seeds: int,
    trials: int,
    thresholds: Sequence[float],
    objectives: tuple[Objective, ...],
) -> Plan:
    arms = [
        Arm(
            name,
            "" if not arm_index else f"reason of {name}",
            {},
            (Change("model.width", 64, 64 + arm_index),) if arm_index else (),
            SPACE,
            (),
            name,
            names[0] if arm_index else "",
        )
        for arm_index, name in enumerate(names)
    ]
    numbers = tuple(range(101, 101 + seeds))
    planned_trials = []
    for arm_index, name in enumerate(names):
        planned_trials += [
            PlannedTrial(f"s-{arm_index}-{number}", name, "search", number, number)
            for number in range(trials)
        ]
        planned_trials += [
            PlannedTrial(f"c-{arm_index}-{seed}", name, "confirm", index, seed, 0)
            for index, seed in enumerate(numbers)
        ]
        planned_trials += [
            PlannedTrial(f"p-{arm_index}-{seed}-{value}", name, "posthoc", index, seed, 0, {THRESHOLD: value})
            for index, seed in enumerate(numbers)
            for value in thresholds
        ]
    return Plan(
        name="study",
        question="Which part does the work?",
        spec_digest="0123456789abcdef",
        arms=tuple(arms),
        search=SearchPlan(trials, {"name": "tpe"}, None, objectives, 0) if trials else None,
        confirm=ConfirmPlan(1, numbers, SPLITS) if seeds else None,
        posthoc=tuple({THRESHOLD: value} for value in thresholds),
        resources=Resources(cpus=2),
        wall_clock_hours=None,
        trials=tuple(planned_trials),
        proofs=tuple(
            ArmCheck(name, 10_000 + index, (), (), 1e6, 4e6, 1.0, 1.0, functional_change=True)
            for index, name in enumerate(names)
        ),
        answer=AnswerPlan((f"{SPLITS[0]}/accuracy",), 0.01, 0.05, max(1, len(names) - 1)) if seeds else None,
        metrics=METRICS,
    )


def _make_record(
    plan: Plan, trial: PlannedTrial, arm_index: int, outcome_of: Any
) -> tuple[Record | None, list[Measurement]]:
    rng = random.Random(trial.trial_id)
    assignment = {
        "train.lr": 10 ** rng.uniform(-4, -1),
        "model.layers": rng.randint(2, 12),
        "model.gate": rng.random() < 0.5,
    }
    loss_of_rate = (math.log10(assignment["train.lr"]) + 2.5) ** 2 / 10
    value = 0.85 - loss_of_rate - 0.03 * arm_index + 0.002 * assignment["model.layers"] + rng.gauss(0, 0.01)
    outcome: OutcomeKind | None = OutcomeKind.FINISHED
    if trial.phase == "search" and trial.number % 4 == 3:
        outcome = OutcomeKind.PRUNED if trial.number % 8 == 3 else OutcomeKind.DIVERGED
    if trial.phase != "search":
        assignment = {"train.lr": 0.003, "model.layers": 12, "model.gate": True}
        value = 0.85 - 0.03 * arm_index + rng.gauss(0, 0.01)
        outcome = outcome_of(arm_index, trial.seed - 101)
    depth = (
        6
        + (rng.random() if trial.phase == "search" else 0)
        + (trial.overrides[THRESHOLD] * 4 - 4 if trial.overrides else 0)
        + arm_index / 2
    )
    is_finished = outcome is OutcomeKind.FINISHED
    steps = STEPS if is_finished else STEPS[:2]
    curve = [
        _make_measurement(step, value, depth, trial, steps[-1] == step and is_finished) for step in steps
    ]
    if trial.phase == "posthoc":
        curve = curve[-1:]
    record = Record(
        *(trial.trial_id, plan.name, trial.arm, trial.phase, trial.number, trial.seed, trial.rank),
        assignment=assignment,
        overrides=trial.overrides,
        settings={},
        outcome=outcome,
        reason="synthetic",
        last=curve[-1],
        best=None,
        started_at=1e9 + len(trial.trial_id),
        ended_at=1e9 + 100 + trial.number,
        attempts=1,
        provenance={"commit": "c0ffee", "python": "3.11", "versions": {"torch": "2"}, "devices": []},
    )
    return (replace(record, ended_at=None) if outcome is None else record), curve


def _make_measurement(
    step: int, value: float, depth: float, trial: PlannedTrial, is_last: bool
) -> Measurement:
    share = 1 - math.exp(-step / 80)
    splits = ("valid", *SPLITS) if is_last and trial.phase != "search" else ("valid",)
    metrics = {"train/loss": 3 * (1 - share) + 0.1}
    for index, split in enumerate(splits):
        metrics |= {
            f"{split}/accuracy": max(0.0, min(1.0, value * share - 0.2 * (index == 2))),
            f"{split}/loss": 2.5 - share,
            f"{split}/depth": depth + index,
            f"{split}/depth_p10": depth + index - 2,
            f"{split}/depth_p90": depth + index + 1,
        }
    return Measurement(step, step / 2, metrics)


def with_metrics(record: Record, metrics: Mapping[str, float]) -> Record:
    """Return the record with these last values."""
    return replace(record, last=replace(record.last, metrics={**record.last.metrics, **metrics}))


def remove_metrics(study: Study, metrics: Sequence[str], is_affected: Callable[[Record], bool]) -> Study:
    """Return the study where affected confirm trials finished without some metrics."""

    def drop_metrics(record: Record) -> Record:
        if record.phase != "confirm" or record.last is None or not is_affected(record):
            return record
        remaining_metrics = {
            name: value for name, value in record.last.metrics.items() if name not in metrics
        }
        return replace(record, last=replace(record.last, metrics=remaining_metrics))

    return replace(study, records=tuple(map(drop_metrics, study.records)))
