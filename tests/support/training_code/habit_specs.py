"""A spec with one arm for each habit of training code."""

from collections.abc import Iterable, Mapping

import yaml


def habits_spec(levels: Mapping[str, Mapping[str, float]], seeds: Iterable[int]) -> str:
    """Return a spec with one arm for each coding habit and each of its levels."""
    arms = {
        f"{habit}-{name}": {"why": "a habit", "set": {"habit": habit, "level": level}}
        for habit, levels_by_name in levels.items()
        for name, level in levels_by_name.items()
    }
    return yaml.safe_dump(
        {
            "name": "habits",
            "question": "Does one trial affect another?",
            "trainable": "job:train",
            "baseline": {"habit": "none", "level": 0.5},
            "arms": arms,
            "confirm": {"seeds": list(seeds), "splits": ["test"]},
        },
        sort_keys=False,
    )
