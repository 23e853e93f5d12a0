"""What makes no difference beside the baseline's own values may make one beside those that a search draws."""

from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any

from orchestrator.plan.declared import Sweep
from orchestrator.plan.effects import effects, shows
from orchestrator.plan.probe import Probe
from orchestrator.plan.settings import System, checked
from orchestrator.plan.spaces import assigned, condition_values, ends
from search_spaces.dimensions import Space, Value


def draws(space: Space, left_out: Collection[str] = ()) -> Iterator[dict[str, Value]]:
    """Every dimension of `space` at each of its ends, alone, with what it depends on."""
    for dimension in space.dimensions:
        if dimension.path not in left_out:
            for value in ends(dimension.domain):
                yield {**condition_values(dimension, space), dimension.path: value}


def effects_where_searched(
    probe: Probe, before: System, after: System, sweep: Sweep, left_out: Collection[str]
) -> tuple[str, ...]:
    """What `effects` shows of both with one of the searched fields, but those `left_out`, at one of its ends.

    Empty where nothing does, or where nothing is searched.
    """
    for draw in draws(sweep.searched, left_out):
        one, other = (_with(system.settings, draw) for system in (before, after))
        if one is None or other is None:
            continue
        with suppress(ValueError):  # what cannot be run there is told of the search
            if shows(found := effects(probe, one, other, sweep)):
                return found
    return ()


def _with(settings: Mapping[str, Any], draw: Mapping[str, Value]) -> System | None:
    made = assigned(settings, draw)
    found = None if made is None else checked(made)
    return found if isinstance(found, System) else None
