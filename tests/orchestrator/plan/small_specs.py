"""A spec that is planned in a fraction of a second, and functions that change it."""

from collections.abc import Mapping
from typing import Any

from orchestrator.spec.types import Spec

BASELINE: Mapping[str, Any] = {
    "task": {"name": "listops"},
    "model": {"name": "universal", "width": 16, "heads": 2, "max_layers": 6},
    "train": {"steps": 100, "batch_size": 4, "report_every": 1},
}
ARMS: Mapping[str, Any] = {
    "minus-gate": {"why": "plain feed-forward block", "set": {"model.gate": False}},
    "minus-global-halt": {"why": "each token decides for itself", "set": {"model.halt.unit": "token"}},
    "minus-transition": {"why": "no look at the next layer", "set": {"model.halt.transition": False}},
    "no-halt": {
        "why": "always max_layers",
        "set": {"model.halt": None},
        "drop": ["model.halt.threshold", "train.ponder_weight"],
    },
}
SEARCH: Mapping[str, Any] = {
    "spaces": ["halting"],
    "also": {"train.lr": {"float": [1e-4, 2e-3], "log": True}},
    "stopper": {"name": "asha", "grace_steps": 10, "reduction": 3},
    "trials_per_arm": 3,
    "objectives": [{"metric": "valid/accuracy", "goal": "max"}],
}
CONFIRM: Mapping[str, Any] = {"seeds": [101, 102, 103], "splits": ["near-iid"]}


def make_spec(**parts: Any) -> Spec:
    """Make a spec of `parts` over a small baseline, with confirm trials and without a search."""
    return Spec.model_validate(
        {"name": "small", "question": "Does it plan?", "baseline": BASELINE, "confirm": CONFIRM} | parts
    )


def make_baseline(**model: Any) -> dict[str, Any]:
    """Return the small baseline with changed model settings."""
    return {**BASELINE, "model": {**BASELINE["model"], **model}}


def make_full_spec(**parts: Any) -> Spec:
    """Make a small spec with arms, search, confirm and posthoc."""
    return make_spec(
        **{"arms": ARMS, "search": SEARCH, "posthoc": {"model.halt.threshold": [0.3, 0.7]}} | parts
    )


def make_one_arm_spec(
    sets: Mapping[str, Any], *, name: str = "arm", why: str = "because", **parts: Any
) -> Spec:
    """Make a spec with a single arm."""
    return make_spec(arms={name: {"why": why, "set": dict(sets)}}, **parts)
