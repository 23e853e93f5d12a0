"""How many examples a property is tried on: few and the same ones in every run, or many that no run has seen.

The profile in force says which: `haltsweep` (the default) or `thorough`, which `make search` asks for.
"""

from typing import Any

from hypothesis import settings

USUAL = 25
"""Examples of a property that says nothing else."""
THOROUGH = 40
"""How many times as many a search tries."""


def register() -> None:
    """The two profiles; the first one is in force unless pytest is asked for the other."""
    # A slow machine is no failure.
    settings.register_profile("haltsweep", deadline=None, derandomize=True, database=None, max_examples=USUAL)
    settings.register_profile(
        "thorough", deadline=None, derandomize=False, print_blob=True, max_examples=THOROUGH * USUAL
    )
    settings.load_profile("haltsweep")


def examples(count: int, **more: Any) -> settings:
    """`count` examples, or in a search as many times more as of any property; `more` as Hypothesis has it."""
    return settings(max_examples=count * settings().max_examples // USUAL, **more)
