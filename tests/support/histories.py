"""Events of made-up sweeps, valid by construction, for tests of what is stored and shown."""

import random
from collections.abc import Iterator

from orchestrator.ledger import events as log
from orchestrator.ledger.events import Event
from orchestrator.ledger.lease import Holder
from orchestrator.plan.types import Plan
from orchestrator.trials import Outcome, OutcomeKind, PlannedTrial, Trial
from trainables.protocol import Measurement

DEAD = Holder("elsewhere", 1, "another boot", 0.0, 0.0)
"""A process of another machine: nobody here can tell whether it lives."""
FATES = tuple(OutcomeKind)


def trial_of(plan: Plan, number: int) -> Trial:
    """The plan's trial at position `number`, with an assignment."""
    planned = plan.trials[number]
    settings = plan.arm(planned.arm).settings
    return Trial(planned, {"model.x": number / 7}, settings, ("test",) if planned.phase == "confirm" else ())


def measurement(step: int, value: float = 0.5) -> Measurement:
    """Two metrics at a step."""
    return Measurement(step, step / 10, {"valid/score": value, "train/loss": 1 / (1 + step)})


def history(plan: Plan, seed: int = 0, *, steps: int = 3, closed: str | None = "done") -> Iterator[Event]:
    """A whole sweep: every trial of the plan once, with outcomes of all kinds, some attempts lost."""
    stream = random.Random(seed)
    now = 1_700_000_000.0
    yield log.opened(now, DEAD, plan.spec_digest, {"commit": "c0ffee", "host": "elsewhere"})
    for number, planned in enumerate(plan.trials):
        now += 1
        yield log.asked(now, trial_of(plan, number))
        yield log.started(now + 0.1, planned.trial_id, 1)
        fate = FATES[number % len(FATES)] if seed else OutcomeKind.FINISHED
        yield from _attempts(planned, now, stream, steps)
        yield log.ended(now + 0.9, planned.trial_id, Outcome(fate, fate.sentence))
    if closed:
        yield log.closed(now + 2, closed)


def _attempts(planned: PlannedTrial, now: float, stream: random.Random, steps: int) -> Iterator[Event]:
    lost_at = stream.randrange(1, steps) if steps > 1 and stream.random() < 0.3 else None
    for step in range(1, steps + 1):
        if step == lost_at:
            yield log.checkpointed(
                now + 0.2, planned.trial_id, step, f"checkpoints/{planned.trial_id}/{step}"
            )
            yield log.started(now + 0.3, planned.trial_id, 2)
        yield log.measured(now + 0.1 + step / 100, planned.trial_id, measurement(10 * step, stream.random()))
