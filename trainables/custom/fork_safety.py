"""Count the threads of this process that a fork would lose."""

import threading
from pathlib import Path

from threadpoolctl import threadpool_info

TASKS = Path("/proc/self/task")
ALLOCATOR_THREAD = "jemalloc_bg_thd"
"""Name of the thread of pyarrow's allocator, which stops before a fork and restarts in both processes."""


def num_unforkable_threads() -> int:
    """Return the number of threads of this process that do not restart after a fork.

    Threads of OpenBLAS (used by numpy and scipy) and of pyarrow's allocator restart, so they are not counted.
    Without /proc, only threads of Python are counted.
    """
    try:
        names = [_name(task) for task in TASKS.iterdir()]
    except OSError:
        return threading.active_count()
    pool_threads = (
        int(pool["num_threads"]) - 1 for pool in threadpool_info() if pool["internal_api"] == "openblas"
    )
    return len(names) - names.count(ALLOCATOR_THREAD) - sum(pool_threads)


def _name(task: Path) -> str:
    try:
        return (task / "comm").read_text().strip()
    except OSError:  # a thread that has just ended
        return ""
