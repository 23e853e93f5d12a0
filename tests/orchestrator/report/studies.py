"""Made-up studies with everything that a page can show: searches, seeds, thresholds, curves, failures."""

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
    """Plan, records and measurements that belong together."""

    plan: Plan
    records: tuple[Record, ...]
    measured: Mapping[str, Sequence[Measurement]]

    def report(self) -> Report:
        """Of it."""
        return summarise(self.plan, self.records)

    def details(self) -> Details:
        """Of it."""
        return details(self.plan, self.report(), self.records, self.measured)


def study(
    arms: int | Sequence[str] = 4,
    seeds: int = 5,
    trials: int = 12,
    *,
    thresholds: Sequence[float] = (0.3, 0.6, 0.9),
    fate: Any = lambda arm, seed: OutcomeKind.FINISHED,
    objectives: tuple[Objective, ...] = (Objective(metric="valid/accuracy", goal="max"),),
) -> Study:
    """`fate`: how a confirm trial ends, by the arm's place and the seed's; None: it has not ended."""
    names = [f"arm-{place}" for place in range(arms)] if isinstance(arms, int) else list(arms)
    plan = _plan(names, seeds, trials, thresholds, objectives)
    records, measured = [], {}
    for planned in plan.trials:
        record, curve = _record(plan, planned, names.index(planned.arm), fate)
        if record is not None:
            records.append(record)
            measured[planned.trial_id] = curve
    return Study(plan, tuple(records), measured)


def _plan(
    names: Sequence[str],
    seeds: int,
    trials: int,
    thresholds: Sequence[float],
    objectives: tuple[Objective, ...],
) -> Plan:
    made = [
        Arm(
            name,
            "" if not place else f"reason of {name}",
            {},
            (Change("model.width", 64, 64 + place),) if place else (),
            SPACE,
            (),
            name,
            names[0] if place else "",
        )
        for place, name in enumerate(names)
    ]
    numbers = tuple(range(101, 101 + seeds))
    planned = []
    for place, name in enumerate(names):
        planned += [PlannedTrial(f"s-{place}-{one}", name, "search", one, one) for one in range(trials)]
        planned += [
            PlannedTrial(f"c-{place}-{seed}", name, "confirm", at, seed, 0) for at, seed in enumerate(numbers)
        ]
        planned += [
            PlannedTrial(f"p-{place}-{seed}-{value}", name, "posthoc", at, seed, 0, {THRESHOLD: value})
            for at, seed in enumerate(numbers)
            for value in thresholds
        ]
    return Plan(
        name="study",
        question="Which part does the work?",
        spec_digest="0123456789abcdef",
        arms=tuple(made),
        search=SearchPlan(trials, {"name": "tpe"}, None, objectives, 0) if trials else None,
        confirm=ConfirmPlan(1, numbers, SPLITS) if seeds else None,
        posthoc=tuple({THRESHOLD: value} for value in thresholds),
        resources=Resources(cpus=2),
        wall_clock_hours=None,
        trials=tuple(planned),
        proofs=tuple(
            ArmCheck(name, 10_000 + at, (), (), 1e6, 4e6, 1.0, 1.0, functional_change=True)
            for at, name in enumerate(names)
        ),
        answer=AnswerPlan((f"{SPLITS[0]}/accuracy",), 0.01, 0.05, max(1, len(names) - 1)) if seeds else None,
        metrics=METRICS,
    )


def _record(
    plan: Plan, planned: PlannedTrial, place: int, fate: Any
) -> tuple[Record | None, list[Measurement]]:
    stream = random.Random(planned.trial_id)
    assignment = {
        "train.lr": 10 ** stream.uniform(-4, -1),
        "model.layers": stream.randint(2, 12),
        "model.gate": stream.random() < 0.5,
    }
    off = (math.log10(assignment["train.lr"]) + 2.5) ** 2 / 10
    value = 0.85 - off - 0.03 * place + 0.002 * assignment["model.layers"] + stream.gauss(0, 0.01)
    outcome: OutcomeKind | None = OutcomeKind.FINISHED
    if planned.phase == "search" and planned.number % 4 == 3:
        outcome = OutcomeKind.PRUNED if planned.number % 8 == 3 else OutcomeKind.DIVERGED
    if planned.phase != "search":
        assignment = {"train.lr": 0.003, "model.layers": 12, "model.gate": True}
        value = 0.85 - 0.03 * place + stream.gauss(0, 0.01)
        outcome = fate(place, planned.seed - 101)
    depth = (
        6
        + (stream.random() if planned.phase == "search" else 0)
        + (planned.overrides[THRESHOLD] * 4 - 4 if planned.overrides else 0)
        + place / 2
    )
    whole = outcome is OutcomeKind.FINISHED
    steps = STEPS if whole else STEPS[:2]
    curve = [_measured(step, value, depth, planned, steps[-1] == step and whole) for step in steps]
    if planned.phase == "posthoc":
        curve = curve[-1:]
    made = Record(
        *(
            planned.trial_id,
            plan.name,
            planned.arm,
            planned.phase,
            planned.number,
            planned.seed,
            planned.rank,
        ),
        assignment=assignment,
        overrides=planned.overrides,
        settings={},
        outcome=outcome,
        reason="made up",
        last=curve[-1],
        best=None,
        started_at=1e9 + len(planned.trial_id),
        ended_at=1e9 + 100 + planned.number,
        attempts=1,
        provenance={"commit": "c0ffee", "python": "3.11", "versions": {"torch": "2"}, "devices": []},
    )
    return (replace(made, ended_at=None) if outcome is None else made), curve


def _measured(step: int, value: float, depth: float, planned: PlannedTrial, last: bool) -> Measurement:
    share = 1 - math.exp(-step / 80)
    splits = ("valid", *SPLITS) if last and planned.phase != "search" else ("valid",)
    metrics = {"train/loss": 3 * (1 - share) + 0.1}
    for at, split in enumerate(splits):
        metrics |= {
            f"{split}/accuracy": max(0.0, min(1.0, value * share - 0.2 * (at == 2))),
            f"{split}/loss": 2.5 - share,
            f"{split}/depth": depth + at,
            f"{split}/depth_p10": depth + at - 2,
            f"{split}/depth_p90": depth + at + 1,
        }
    return Measurement(step, step / 2, metrics)


def without(made: Study, metrics: Sequence[str], among: Callable[[Record], bool]) -> Study:
    """The study where confirm trials among those named finished without having measured some metrics."""

    def lacking(each: Record) -> Record:
        if each.phase != "confirm" or each.last is None or not among(each):
            return each
        kept = {name: value for name, value in each.last.metrics.items() if name not in metrics}
        return replace(each, last=replace(each.last, metrics=kept))

    return replace(made, records=tuple(map(lacking, made.records)))
