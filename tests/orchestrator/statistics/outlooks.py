"""Stated chances that more seeds decide against how often they do; as a module it prints the table.

python -m tests.orchestrator.statistics.outlooks
"""

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from orchestrator.statistics.decision_chance import EFFECT_SPREAD, NO_EFFECT, TIMES, decision_chances
from orchestrator.statistics.paired import PairedEstimate, compare
from orchestrator.statistics.verdicts import verdict

Effects = Callable[[np.random.Generator], float]
"""Draws an effect, in standard deviations of a paired difference."""
BINS = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0)


def of_the_prior(rng: np.random.Generator) -> float:
    return 0.0 if rng.random() < NO_EFFECT else rng.normal() * EFFECT_SPREAD


def none(rng: np.random.Generator) -> float:
    return 0.0


def one(rng: np.random.Generator) -> float:
    return 1.0


def compared(values: np.ndarray, family: int) -> PairedEstimate:
    return compare({("arm", "x"): dict(enumerate(values.tolist()))}, family=family)["arm", "x"]


def chances(
    effects: Effects, seeds: int, family: int, experiments: int, margin: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return stated chances and whether more seeds decided, of undecided experiments, by number of seeds."""
    rng = np.random.default_rng([seeds, family])
    stated, decided = [], []
    while len(stated) < experiments:
        values = effects(rng) + rng.normal(size=seeds + max(int(np.ceil(seeds * each)) for each in TIMES))
        scale = 10 ** rng.uniform(-1.5, 1.5)
        found = compared(values[:seeds] * scale, family)
        if verdict(found, margin=margin).kind != "undecided":
            continue
        known = decision_chances(found, margin)
        stated.append([each.chance for each in known])
        later = [compared(values[: seeds + each.more] * scale, family) for each in known]
        decided.append([verdict(each, margin=margin).kind != "undecided" for each in later])
    return np.array(stated), np.array(decided)


def main() -> None:
    for effects, seeds, family in (
        *((each, 4, 1) for each in (of_the_prior, none, one)),
        *((each, 5, 4) for each in (of_the_prior, none, one)),
        *((each, 8, 4) for each in (of_the_prior, none, one)),
    ):
        stated, decided = chances(effects, seeds, family, 1500)
        print(f"\n{effects.__name__}, {seeds} seeds, {family} comparisons: stated, decided")
        for place, times in enumerate(TIMES):
            row = [f"{times:g} times: {stated[:, place].mean():.3f} {decided[:, place].mean():.3f}"]
            for low, high in pairwise(BINS):
                own = (stated[:, place] >= low) & (stated[:, place] < high)
                if own.any():
                    row.append(
                        f"{stated[own, place].mean():.2f} {decided[own, place].mean():.2f} ({own.sum()})"
                    )
            print("; ".join(row))


if __name__ == "__main__":
    main()
