"""Events of invented sweeps, valid by construction, for tests of storage and display."""

import random
from collections.abc import Iterator

from orchestrator.ledger import events as log
from orchestrator.ledger.events import Event
from orchestrator.ledger.lease import Holder
from orchestrator.plan.types import Plan
from orchestrator.trials import Outcome, OutcomeKind, PlannedTrial, Trial
from trainables.protocol import Measurement

DEAD = Holder("elsewhere", 1, "another boot", 0.0, 0.0)
"""A process of another machine, so no process here can check whether it is alive."""
OUTCOME_KINDS = tuple(kind for kind in OutcomeKind if kind is not OutcomeKind.INFEASIBLE)
"""Outcomes of a plan's trials, without infeasible trials, whose replacements the plan does not name."""


def trial_of(plan: Plan, number: int) -> Trial:
    """Return the plan's trial at position `number`, with params."""
    planned = plan.trials[number]
    settings = plan.arm(planned.arm).settings
    return Trial(planned, {"model.x": number / 7}, settings, ("test",) if planned.phase == "confirm" else ())


def measurement(step: int, value: float = 0.5) -> Measurement:
    """Return two metrics at a step."""
    return Measurement(step, step / 10, {"valid/score": value, "train/loss": 1 / (1 + step)})


def _outcome_kind(number: int, seed: int) -> OutcomeKind:
    return OUTCOME_KINDS[number % len(OUTCOME_KINDS)] if seed else OutcomeKind.FINISHED


def begun(plan: Plan, seed: int = 1) -> list[PlannedTrial]:
    """Return the trials that start in `history`: all that are not skipped."""
    outcomes = [_outcome_kind(number, seed) for number in range(len(plan.trials))]
    return [
        trial
        for trial, outcome in zip(plan.trials, outcomes, strict=True)
        if outcome is not OutcomeKind.SKIPPED
    ]


def history(plan: Plan, seed: int = 0, *, steps: int = 3, closed: str | None = "done") -> Iterator[Event]:
    """Yield the events of a whole sweep: every trial once, with all outcomes and some lost attempts."""
    stream = random.Random(seed)
    now = 1_700_000_000.0
    yield log.claim_event(now, DEAD, plan.spec_digest, {"commit": "c0ffee", "host": "elsewhere"})
    for number, planned in enumerate(plan.trials):
        now += 1
        yield log.params_event(now, trial_of(plan, number))
        outcome = _outcome_kind(number, seed)
        if outcome is not OutcomeKind.SKIPPED:  # a skipped trial never starts
            yield log.start_event(now + 0.1, planned.trial_id, 1)
            yield from _attempts(planned, now, stream, steps)
        yield log.end_event(now + 0.9, planned.trial_id, Outcome(outcome, outcome.sentence))
    if closed:
        yield log.release_event(now + 2, closed)


def _attempts(planned: PlannedTrial, now: float, stream: random.Random, steps: int) -> Iterator[Event]:
    lost_at = stream.randrange(1, steps) if steps > 1 and stream.random() < 0.3 else None
    for step in range(1, steps + 1):
        if step == lost_at:
            yield log.checkpoint_event(
                now + 0.2, planned.trial_id, step, f"checkpoints/{planned.trial_id}/{step}"
            )
            yield log.start_event(now + 0.3, planned.trial_id, 2)
        yield log.measurement_event(
            now + 0.1 + step / 100, planned.trial_id, measurement(10 * step, stream.random())
        )
