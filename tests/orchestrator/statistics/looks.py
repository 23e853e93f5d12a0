"""Studies with looks, many at once, for tests of what they claim; as a module it prints the tables.

python -m tests.orchestrator.statistics.looks
"""

from collections.abc import Sequence

import numpy as np
from scipy import stats

from orchestrator.statistics import sequential
from orchestrator.statistics.paired import LEVEL, MEDIAN_SHARE
from tests.orchestrator.statistics.studies import (
    ARMS,
    KINDS,
    RESOLUTION,
    STUDIES,
    Array,
    collapsing,
    differences,
    rejected,
    verdicts,
)

SEEDS = 8


def within(found: Array, step: float, level: float, margin: float) -> Array:
    """Where intervals lie within the margin on both sides."""
    seeds, arms = found.shape[1:]
    spreads = found.std(1, ddof=1)
    median = np.sort(spreads, axis=1)[:, [(arms - 1) // 2]]
    used = np.maximum(np.maximum(spreads, step / np.sqrt(6)), MEDIAN_SHARE * median)
    half = stats.t.isf(level / (2 * arms), seeds - 1) * used / np.sqrt(seeds)
    inside: Array = (np.abs(found.mean(1)) + half < margin) & (used > 0)
    return inside


def chance_left(part: Array, seeds: int, step: float, margin: float | None) -> Array:
    """As `sequential.chance_left`, of all studies and arms."""
    number, arms = part.shape[1:]
    spreads = part.std(1, ddof=1)
    median = np.sort(spreads, axis=1)[:, [(arms - 1) // 2]]
    used = np.maximum(np.maximum(spreads, step / np.sqrt(6)), MEDIAN_SHARE * median)
    used[used == 0] = np.nan
    mean, drawn = np.abs(part.mean(1)), stats.t(number - 1)
    half = stats.t.isf(LEVEL / (2 * arms), seeds - 1) * used / np.sqrt(seeds)
    moves = used * np.sqrt((seeds - number) / (seeds * number))
    found = drawn.sf((half - mean) / moves) + drawn.cdf((-half - mean) / moves)
    if margin is not None:
        room = margin - half
        inside = drawn.cdf((room - mean) / moves) - drawn.cdf((-room - mean) / moves)
        found = found + np.where(room > 0, inside, 0.0)
    chances: Array = np.nan_to_num(found, nan=1.0)
    return chances


def looked(
    values: Array,
    step: float = 0.0,
    margin: float | None = None,
    share: float = sequential.LOOK_SHARE,
    hopeless: float = sequential.HOPELESS,
) -> tuple[Array, Array, Array]:
    """(studies, seeds, baseline and arms) to whether a difference is shown, whether one larger than the
    margin is excluded, and the seeds that were run, each of shape (studies, arms)."""
    found = differences(values)
    seeds = found.shape[1]
    shape = (found.shape[0], found.shape[2])
    shown, excluded, given_up = np.zeros(shape, bool), np.zeros(shape, bool), np.zeros(shape, bool)
    used = np.full(shape, seeds)
    for number in (*sequential.looks(seeds), seeds):
        level, part = LEVEL if number == seeds else LEVEL * share, found[:, :number]
        going = ~(shown | excluded | given_up)
        differs = rejected(part, step, level) & verdicts(part, step) & going
        same = np.zeros(shape, bool)
        if margin is not None:
            same = within(part, step, level, margin) & ~rejected(part, step, level) & going
        shown |= differs
        excluded |= same
        used[differs | same] = number
        if number < seeds:
            rest = going & ~differs & ~same & ~rejected(part, step)
            ends = rest & (chance_left(part, seeds, step, margin) < hopeless)
            given_up |= ends
            used[ends] = number
    return shown, excluded, used


def family_wise(kind: object, arms: int, share: float = sequential.LOOK_SHARE) -> float:
    """Share of studies without any effect in which some look or the end shows one."""
    chosen = next(each for each in (*KINDS, collapsing) if each is kind)
    place = KINDS.index(chosen) if chosen in KINDS else 99
    values = chosen(np.random.default_rng([place, arms]), (STUDIES, SEEDS, arms + 1))
    return float(looked(values, RESOLUTION.get(chosen, 0.0), share=share)[0].any(1).mean())


def spent(
    effect: float,
    arms: int = 4,
    margin: float | None = None,
    share: float = sequential.LOOK_SHARE,
    hopeless: float = sequential.HOPELESS,
) -> tuple[float, float, float, float]:
    """Power at the end of all seeds and with looks, the share of arms without a difference larger than the
    margin, and the share of the arms' seeds that were run; `effect` and `margin` in standard deviations."""
    values = np.random.default_rng([7, arms]).normal(size=(STUDIES, SEEDS, arms + 1))
    values[..., 1:] += effect
    shown, excluded, used = looked(values, margin=margin, share=share, hopeless=hopeless)
    fixed = verdicts(differences(values))
    return tuple(float(each.mean()) for each in (fixed, shown, excluded, used / SEEDS))  # type: ignore[return-value]


def _table(title: str, headers: Sequence[object], rows: Sequence[Sequence[object]]) -> None:
    print(f"\n{title}\n\n| {' | '.join(map(str, headers))} |\n" + "|---" * len(headers) + "|")
    for row in rows:
        cells = [f"{each:.3f}" if isinstance(each, float) else str(each) for each in row]
        print(f"| {' | '.join(cells)} |")


def main() -> None:
    kinds, effects = (*KINDS, collapsing), (0.0, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0)
    headers = ("power", "with looks", "no difference", "seeds run")
    for share in (0.02, sequential.LOOK_SHARE, 0.1):
        rows = [[kind.__name__, *(family_wise(kind, arms, share) for arms in ARMS)] for kind in kinds]
        _table(f"family-wise error, looks at {share:g} of the level", ("seeds drawn", *ARMS), rows)
        spending = [[effect, *spent(effect, share=share)] for effect in effects]
        _table("4 arms, by effect", ("effect", *headers), spending)
    for hopeless in (0.0, 0.2):
        spending = [[effect, *spent(effect, hopeless=hopeless)] for effect in effects]
        _table(f"4 arms, given up below a chance of {hopeless:g}", ("effect", *headers), spending)
    rows = [[margin, *spent(0.0, margin=margin)] for margin in (2.0, 3.0, 5.0, 10.0)]
    _table("no effect, by margin", ("margin", *headers), rows)


if __name__ == "__main__":
    main()
