"""Devices of GPU tests: CUDA for all cases; a few also run on the CPU, where GPUs are missing."""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
import torch

REASON = "needs a CUDA device"
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason=REASON)


def on_devices(cases: Mapping[str, Any], *, rehearse: Iterable[str] | None = None) -> pytest.MarkDecorator:
    """Parametrise `case` and `device`: all cases on CUDA, those to `rehearse` (or the first) on the CPU."""
    rehearsed = list(cases)[:1] if rehearse is None else list(rehearse)
    params = [pytest.param(cases[label], "cpu", id=f"{label}-cpu") for label in rehearsed]
    marks = (pytest.mark.gpu, needs_cuda)
    params += [pytest.param(case, "cuda", id=f"{label}-cuda", marks=marks) for label, case in cases.items()]
    return pytest.mark.parametrize(("case", "device"), params)
