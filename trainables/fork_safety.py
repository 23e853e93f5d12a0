"""Number of threads of this process that a fork would lose."""

import threading
from pathlib import Path

from threadpoolctl import threadpool_info

TASKS = Path("/proc/self/task")
ALLOCATOR = "jemalloc_bg_thd"
"""pyarrow's allocator; it stops its thread before a fork and starts it again in both processes."""


def num_threads() -> int:
    """Return the number of threads, without those whose libraries start them again after a fork.

    These are the threads of OpenBLAS, which numpy and scipy bring along, and of pyarrow's allocator. Native
    threads are counted only where the system lists them.
    """
    try:
        names = [_name(task) for task in TASKS.iterdir()]
    except OSError:
        return threading.active_count()
    pools = (int(pool["num_threads"]) - 1 for pool in threadpool_info() if pool["internal_api"] == "openblas")
    return len(names) - names.count(ALLOCATOR) - sum(pools)


def _name(task: Path) -> str:
    try:
        return (task / "comm").read_text().strip()
    except OSError:  # a thread that has just ended
        return ""
