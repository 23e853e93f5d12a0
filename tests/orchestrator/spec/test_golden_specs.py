"""Every bad spec in tests/golden/specs raises the expected errors.

To accept new wording, run `python -m tests.orchestrator.spec.test_golden_specs` and read the diff.
"""

from pathlib import Path

import pytest

from orchestrator.errors import SpecError
from orchestrator.spec.load import load_spec
from tests.support.specs.golden import GOLDEN, GoldenMessages


def spec_errors(name: str) -> str:
    """Return the errors of reading the spec `name` in its folder."""
    with pytest.raises(SpecError) as caught:
        load_spec(Path(f"{name}.yaml"))
    return f"{caught.value}\n"


MESSAGES = GoldenMessages(GOLDEN / "specs", spec_errors)


def test_at_least_forty_bad_specs_exist() -> None:
    MESSAGES.check_complete(40)


@pytest.mark.parametrize("name", MESSAGES.names)
def test_message(name: str) -> None:
    MESSAGES.check(name)


if __name__ == "__main__":
    MESSAGES.rewrite()
