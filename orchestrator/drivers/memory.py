"""Whether a finished trial gave its memory back: a worker that serves many trials must not fill up."""

import ctypes
import gc
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

HOST_SLACK_BYTES = 256 << 20
HOST_SLACK_SHARE = 0.25
DEVICE_SLACK_BYTES = 64 << 20
"""cuBLAS and cuDNN keep workspaces of tens of MiB per process."""
_STATUS = Path("/proc/self/status")
_ANONYMOUS = re.compile(r"^RssAnon:\s+(\d+) kB$", re.MULTILINE)


class Footprint:
    """Memory of this process between trials. The first trial sets the base line: it loads the libraries."""

    def __init__(self) -> None:
        self._host: int | None = None

    def settled(self) -> bool:
        """Call after a trial has let go. False if much more memory is held than after the first trial."""
        if self._host is None:
            gc.collect()
            # What libraries allocated stays: later collections need not look at it again.
            gc.freeze()
            _release()
            self._host = host_bytes()
            return device_bytes() <= DEVICE_SLACK_BYTES
        if self._within():
            _release_devices()
            return True
        gc.collect()
        _release()
        return self._within()

    def _within(self) -> bool:
        assert self._host is not None
        slack = max(HOST_SLACK_BYTES, HOST_SLACK_SHARE * self._host)
        return host_bytes() <= self._host + slack and device_bytes() <= DEVICE_SLACK_BYTES


def host_bytes() -> int:
    """Memory of this process that no file backs: mapped datasets do not count."""
    if _STATUS.exists() and (found := _ANONYMOUS.search(_STATUS.read_text())):
        return int(found[1]) * 1024
    return int(psutil.Process().memory_info().rss)


def device_bytes() -> int:
    """Bytes that tensors of this process hold on all CUDA devices; 0 without torch or CUDA."""
    cuda = _cuda()
    return sum(cuda.memory_allocated(each) for each in range(cuda.device_count())) if cuda else 0


def _release() -> None:
    """Hand freed memory back to the system."""
    _release_devices()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _release_devices() -> None:
    if cuda := _cuda():
        cuda.empty_cache()


def _cuda() -> Any:
    # Looked up: a workload without torch must not pay for it.
    torch = sys.modules.get("torch")
    return torch.cuda if torch is not None and torch.cuda.is_initialized() else None
