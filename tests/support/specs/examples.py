"""Set the number of examples of a property test: few fixed ones, or many random ones.

The Hypothesis profile decides: `haltsweep` (the default) or `thorough`, which `make search` uses.
"""

from typing import Any

from hypothesis import settings

DEFAULT_EXAMPLES = 25
"""Examples of a property that sets no number."""
THOROUGH_FACTOR = 40
"""Factor by which the profile `thorough` multiplies the number of examples."""


def register_profiles() -> None:
    """Register both profiles, and load `haltsweep` as the default."""
    # Deadlines would fail on a slow machine.
    settings.register_profile(
        "haltsweep", deadline=None, derandomize=True, database=None, max_examples=DEFAULT_EXAMPLES
    )
    settings.register_profile(
        "thorough",
        deadline=None,
        derandomize=False,
        print_blob=True,
        max_examples=THOROUGH_FACTOR * DEFAULT_EXAMPLES,
    )
    settings.load_profile("haltsweep")


def examples(count: int, **options: Any) -> settings:
    """Return settings for `count` examples, scaled by the profile; `options` are Hypothesis settings."""
    return settings(max_examples=count * settings().max_examples // DEFAULT_EXAMPLES, **options)
