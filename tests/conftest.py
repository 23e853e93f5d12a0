"""For all tests: shapes and types in signatures are checked, and fast tests come before slow ones."""

import os
import signal
from collections.abc import Iterable

import pytest
from jaxtyping import install_import_hook

from tests.support.examples import register

# Tests work on tiny tensors, where threads only wait for each other; read when torch is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

install_import_hook(
    ["trainables.layers", "trainables.models", "trainables.heads", "trainables.types"], "beartype.beartype"
)

register()

# Started in the background by a shell, they would have the commands that they start ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

CONTRACTS = ("tests/contracts/", "tests/trainables/decoding/test_answers.py")
ONE_IN = 5
"""Of a promise `make test` tries the first case and a fifth of the others; of each promise another fifth."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A mistake shall show within seconds where it can; of slow tests what may take longest begins first."""
    for number, cases in enumerate(_contracts(items)):
        for place, case in enumerate(cases):
            if len(cases) > ONE_IN and place and (place + number) % ONE_IN:
                case.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: (_is_slow(item), -_patience_s(item)))


def _contracts(items: list[pytest.Item]) -> Iterable[list[pytest.Item]]:
    """Tests that hold many models, tasks or settings to a promise: those of one promise together."""
    found: dict[str, list[pytest.Item]] = {}
    for item in items:
        name, _, case = item.nodeid.partition("[")
        if case and name.startswith(CONTRACTS) and not _is_slow(item):
            found.setdefault(name, []).append(item)
    return found.values()


def _is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


def _patience_s(item: pytest.Item) -> float:
    """Seconds that a slow test asks for beyond what others are given."""
    timeout = item.get_closest_marker("timeout")
    return 0.0 if timeout is None or not _is_slow(item) else float(timeout.args[0])
