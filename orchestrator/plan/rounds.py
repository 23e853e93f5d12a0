"""What looks between seeds may save, said before anything runs."""

from orchestrator.plan.types import Plan
from orchestrator.statistics.sequential import FIRST_LOOK, LOOK_SHARE, expected_seeds

EFFECTS = (2.0, 5.0, 10.0, 20.0)
"""Differences, in standard deviations of a run over seeds, that are given as examples."""


def rounds_sentence(plan: Plan) -> str:
    """How seeds run in rounds and how many an arm is expected to need; empty for a plan without looks."""
    if plan.confirm is None or plan.confirm.stop is None or plan.answer is None:
        return ""
    seeds, answer = len(plan.confirm.seeds), plan.answer
    means = [expected_seeds(effect, seeds, answer.family, answer.level) for effect in EFFECTS]
    listed = ", ".join(f"{mean:.1f} by {effect:g}" for effect, mean in zip(EFFECTS, means, strict=True))
    return (
        f"Seeds run in rounds, {FIRST_LOOK} and then one at a time, and a round waits for its slowest trial. "
        f"An arm that is certain at level {answer.level * LOOK_SHARE:g} after a round needs no more seeds; "
        "what others are compared with runs all of them. An arm that differs by so many standard deviations "
        f"over seeds needs on average, of {seeds} seeds: {listed}. Arms that all "
        "seeds would hardly decide are given up, which saves more."
    )
