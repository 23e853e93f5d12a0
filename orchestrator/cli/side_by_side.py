"""Check many specs in parallel processes; each process builds each distinct config once."""

import ctypes
import gc
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace
from functools import cache, partial
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.cli.display.waiting import LOOK_S
from orchestrator.cli.earlier import found_by, spread_of
from orchestrator.cli.planning import outside_names, planned, planning
from orchestrator.errors import InputError
from search_spaces.wording import amount, visible

if TYPE_CHECKING:
    from orchestrator.plan.ablation_check.probe import Probe
    from orchestrator.plan.types import Plan
    from orchestrator.spec.load import SpecFile

SPECS_A_PROCESS = 3
"""Minimum number of specs per process; fewer are checked faster in a process that has loaded PyTorch."""
M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4
"""Parameters of mallopt(3)."""
KEPT_BYTES = (1 << 31) - 1
"""Maximum value that mallopt(3) accepts."""
GARBAGE_EVERY = 50_000
"""New objects between two cycle collections in a pool process; the default takes a sixth of its time."""


@dataclass(frozen=True, slots=True)
class Checked:
    """Result of checking a spec."""

    profiles: tuple[str, ...]
    faults: tuple[str, ...]
    """Faults of the spec and its profiles, each line once."""
    warnings: tuple[str, ...] = ()
    """Warnings about probable mistakes, each line once."""
    out: str = ""
    """Output of custom training code during the check."""
    err: str = ""


def check_all(paths: Sequence[Path]) -> Iterator[Checked]:
    """Yield the result for each spec with all of its profiles, in the given order."""
    processes = min(cores(), len(paths) // SPECS_A_PROCESS)
    if processes < 2:
        make = partial(planned, probe=cache(_new_probe))
        yield from (_checked(path, make) for path in paths)
        return
    children = set(active_children())
    with ProcessPoolExecutor(processes, get_context(_way()), _begin) as pool:
        try:
            with _interrupts_held():
                begun = {path: pool.submit(_checked_there, path) for path in sorted(set(paths), key=_size)}
                waiting = [begun[path] for path in paths]
            for path, each in zip(paths, waiting, strict=True):
                yield _awaited(each, path, waiting)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for child in set(active_children()) - children:
                child.terminate()
            raise


def _way() -> str:
    """Return the start method of the pool: `fork` if this process can be forked safely, else `spawn`.

    Forked processes share the modules that this process has imported. Spawned processes import them again.
    """
    if sys.platform != "linux" or not may_be_copied():
        return "spawn"
    import orchestrator.plan.planner
    import orchestrator.search.sampler_check  # noqa: F401

    gc.collect()
    gc.freeze()  # current objects are never collected, so forked processes need not scan them
    return "fork"


def may_be_copied() -> bool:
    """Return whether this process can be forked safely: PyTorch is not loaded, and it has one thread."""
    if not hasattr(os, "fork") or "torch" in sys.modules or threading.active_count() > 1:
        return False
    tasks = Path("/proc/self/task")  # this list includes threads that `threading` does not track
    return not tasks.is_dir() or len(list(tasks.iterdir())) == 1


def _size(path: Path) -> int:
    """Return a sort key that puts long specs first, so that the last running checks are short."""
    try:
        return -path.stat().st_size
    except OSError:  # reported when the file is read
        return 0


def _checked(path: Path, make: Callable[..., "tuple[SpecFile, Plan]"]) -> Checked:
    """Check the spec at `path` and its profiles, each planned by `make`."""
    from orchestrator.spec.load import profile_names

    by_line: dict[str, str] = {}
    warnings: dict[str, None] = {}
    profiles = profile_names(path)
    for profile in (None, *profiles):
        try:
            _, made = make(path, profile=profile)
            warnings |= dict.fromkeys(_warnings(made))
        except KeyboardInterrupt:
            raise
        except BaseException as raised:
            error = raised if isinstance(raised, InputError) else _blamed(path, raised)
            addition = f" (with the profile {profile!r})" if profile else ""
            by_line |= {line: line + addition for line in str(error).splitlines() if line not in by_line}
        if by_line and profile is None:
            break  # a faulty spec is faulty with every profile
    return Checked(profiles, tuple(by_line.values()), tuple(warnings))


def _warnings(plan: "Plan") -> list[str]:
    # Imported here, since a refused spec needs none of these modules.
    from orchestrator.plan.display.render import look_twice

    return look_twice(plan)


def _blamed(path: Path, raised: BaseException) -> InputError:
    """Return an exception of custom code as a fault of the spec; reraise any other exception."""
    from trainables.custom.extensions import custom_code_error

    if not (fault := custom_code_error(raised)):
        raise raised
    return InputError(f"{path}: {fault}")


def cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _awaited(found: "Future[Checked]", path: Path, all_of_them: "Sequence[Future[Checked]]") -> Checked:
    """Return the result for the spec at `path`; faults are confirmed by a second check in this process."""
    with planning(outside_names(path)) as waiting:
        left = 0
        while not found.done():
            before, left = left, sum(not each.done() for each in all_of_them)
            if left != before:
                waiting.update(f"{amount(left, 'spec')} left, among them {path}")
            wait([found], timeout=LOOK_S)
        try:
            checked = found.result()
        except BrokenProcessPool:
            checked = None
    # Concurrent checks of large models may have exhausted the memory for this one.
    if checked is None:
        checked = _checked_alone(path)
    elif checked.faults:
        return _checked(path, planned)
    # The output comes from custom code: escape control characters, and keep it off standard output.
    sys.stderr.write(visible(checked.out + checked.err))
    return checked


def _checked_alone(path: Path) -> Checked:
    """Check a spec in a separate process with nothing else running, so that a crash is due to its code."""
    with ProcessPoolExecutor(1, get_context("spawn"), _begin) as pool:
        try:
            with _interrupts_held():
                found = pool.submit(_checked_there, path)
            return found.result()
        except BrokenProcessPool:
            message = "the process that looked at it was ended, by code that it names or for want of memory"
            return Checked((), (f"{path}: {message}; run that code by itself to see which",))


def _checked_there(path: Path) -> Checked:
    """Check a spec in a process of the pool, and capture the output."""
    from orchestrator.plan.planner import plan_file

    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        make = partial(
            plan_file,
            probe=_probe_of_process(),
            found=partial(found_by, None),
            spread_of=partial(spread_of, None),
        )
        checked = _checked(path, make)
    return replace(checked, out=out.getvalue(), err=err.getvalue())


def _new_probe() -> "Probe":
    from orchestrator.plan.ablation_check.probe import Probe

    return Probe(faults_only=True)


@cache
def _probe_of_process() -> "Probe":
    """Return the probe of this process, so that models built for one spec are reused for the next."""
    return _new_probe()


def _begin() -> None:
    """Initialise a process of the pool."""
    gc.set_threshold(GARBAGE_EVERY)
    _keep_memory()
    _end_with_parent()


def _keep_memory() -> None:
    """Retain freed memory of large models, since reallocating it takes a fifth of the run time.

    This needs mallopt(3) of the C library of most Linux systems; elsewhere the function does nothing.
    """
    try:
        tuned = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    tuned(M_MMAP_MAX, 0)
    tuned(M_TRIM_THRESHOLD, KEPT_BYTES)


def _end_with_parent() -> None:
    """Exit this pool process when its parent is killed; it would otherwise wait forever on its own pipe."""
    parent = parent_process()
    assert parent is not None, "runs in processes of the pool"

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, name="end-with-parent", daemon=True).start()


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Block Ctrl-C for processes started in the context; this process handles it afterwards."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
