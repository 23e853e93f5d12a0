"""For all tests: shapes and types in signatures are checked, and fast tests come before slow ones."""

import os

import pytest
from jaxtyping import install_import_hook

from tests.support.examples import register

# Tests work on tiny tensors, where threads only wait for each other; read when torch is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

install_import_hook(
    ["trainables.layers", "trainables.models", "trainables.heads", "trainables.types"], "beartype.beartype"
)

register()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A mistake shall show within seconds where it can; of slow tests what may take longest begins first."""
    items.sort(key=lambda item: (item.get_closest_marker("slow") is not None, -_patience_s(item)))


def _patience_s(item: pytest.Item) -> float:
    """Seconds that a slow test asks for beyond what others are given."""
    slow, timeout = item.get_closest_marker("slow"), item.get_closest_marker("timeout")
    return 0.0 if slow is None or timeout is None else float(timeout.args[0])
