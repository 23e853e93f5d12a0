"""Where GPU tests run: on CUDA all of their cases, on the CPU a few, so that the tests work at all."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
import torch

REASON = "needs a CUDA device"
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason=REASON)


def on_devices(cases: Mapping[str, Any], *, rehearse: Iterable[str] | None = None) -> pytest.MarkDecorator:
    """Parameters `case` and `device`: all cases on CUDA, those to `rehearse` (or the first) on the CPU."""
    rehearsed = list(cases)[:1] if rehearse is None else list(rehearse)
    found = [pytest.param(cases[label], "cpu", id=f"{label}-cpu") for label in rehearsed]
    marks = (pytest.mark.gpu, needs_cuda)
    found += [pytest.param(case, "cuda", id=f"{label}-cuda", marks=marks) for label, case in cases.items()]
    return pytest.mark.parametrize(("case", "device"), found)
