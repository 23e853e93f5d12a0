"""A spec small enough to be planned in a fraction of a second, and ways to change it."""

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


def spec(**parts: Any) -> Spec:
    """A spec of `parts` over a small baseline that is confirmed and not searched."""
    return Spec.model_validate(
        {"name": "small", "question": "Does it plan?", "baseline": BASELINE, "confirm": CONFIRM} | parts
    )


def baseline(**model: Any) -> dict[str, Any]:
    """The small baseline with other model settings."""
    return {**BASELINE, "model": {**BASELINE["model"], **model}}


def full(**parts: Any) -> Spec:
    """Everything a spec can ask for, small."""
    return spec(**{"arms": ARMS, "search": SEARCH, "posthoc": {"model.halt.threshold": [0.3, 0.7]}} | parts)


def one_arm(sets: Mapping[str, Any], *, name: str = "arm", why: str = "because", **parts: Any) -> Spec:
    """A spec with a single arm."""
    return spec(arms={name: {"why": why, "set": dict(sets)}}, **parts)
