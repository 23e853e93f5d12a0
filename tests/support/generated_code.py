"""What tests through PyTorch's own backend need: a C++ compiler, and not to wait for it long."""

import shutil
from typing import Final

import pytest

CXX: Final = next(filter(shutil.which, ("g++", "clang++", "c++")), None)
"""Name of a C++ compiler; None where there is none."""


def build_quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let it optimise nothing, here and in processes that are started: nobody measures what it makes."""
    monkeypatch.setenv("TORCHINDUCTOR_DEBUG_COMPILE", "1")
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
