"""A trial as JSON and back: what an `asked` event carries."""

from collections.abc import Mapping
from typing import Any

from orchestrator.trials import PlannedTrial, Trial


def trial_to_json(trial: Trial) -> dict[str, Any]:
    """JSON values only; `trial_from_json` gives an equal trial."""
    planned = trial.planned
    return {
        "trial_id": planned.trial_id,
        "arm": planned.arm,
        "phase": planned.phase,
        "number": planned.number,
        "seed": planned.seed,
        "rank": planned.rank,
        "overrides": dict(planned.overrides),
        "assignment": dict(trial.assignment),
        "settings": dict(trial.settings),
        "splits": list(trial.splits),
        "source_id": trial.source_id,
    }


def trial_from_json(payload: Mapping[str, Any]) -> Trial:
    """The trial of an `asked` event."""
    planned = PlannedTrial(
        trial_id=payload["trial_id"],
        arm=payload["arm"],
        phase=payload["phase"],
        number=payload["number"],
        seed=payload["seed"],
        rank=payload["rank"],
        overrides=payload["overrides"],
    )
    return Trial(
        planned=planned,
        assignment=payload["assignment"],
        settings=payload["settings"],
        splits=tuple(payload["splits"]),
        source_id=payload["source_id"],
    )
