"""What a trial's code may set for all of its process, put back before the next trial begins.

Environment, arguments, mask and folder of new files, signal handlers, global generators, warning filters,
logging, start of processes, NumPy's way with errors, and what PyTorch keeps (`trainables.torch_state`).
Generators start from the seed of the trial: code that seeds none draws the same in all arms for a seed, and
again when it is begun anew. A library that a trial is the first to load is seeded when it is loaded. Where a
trial's working directory is kept: `working_directory`.
"""

import gc
import logging
import multiprocessing
import os
import random
import signal
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import Any, Final

from trainables.seeds import derive

STREAM: Final = "global"
"""First part of the names of the streams that seed global generators."""
ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SEEDS: Final = 2**32
"""NumPy takes seeds below it."""


class ProcessState:
    """Of one trial after the other."""

    def __init__(self) -> None:
        self._open = ExitStack()

    def begin(self, seed: int) -> None:
        """A trial of this seed begins; whatever the last one left is put back first."""
        self.end()
        self._open.enter_context(_environment())
        self._open.enter_context(_interpreter())
        self._open.enter_context(warnings.catch_warnings())
        self._open.enter_context(_logging())
        self._open.enter_context(_generator(derive(seed, STREAM, "random")))
        for library, keep in _LIBRARIES.items():
            of_library = derive(seed, STREAM, library) % SEEDS
            if library in sys.modules:
                self._open.enter_context(keep(of_library))
            else:
                self._open.enter_context(_when_loaded(library, self._keep_later(keep, of_library)))

    def end(self) -> None:
        """Put back what was there before the trial, if one has begun."""
        self._open.close()

    def _keep_later(self, keep: "Keep", seed: int) -> Callable[[], None]:
        return lambda: self._open.enter_context(keep(seed))


Keep = Callable[[int], AbstractContextManager[None]]


@contextmanager
def _environment() -> Iterator[None]:
    before = dict(os.environ)
    try:
        yield
    finally:
        if (now := dict(os.environ)) != before:
            for name in now.keys() - before.keys():
                del os.environ[name]
            os.environ.update({name: value for name, value in before.items() if now.get(name) != value})


@contextmanager
def _interpreter() -> Iterator[None]:
    """Mask and folder of new files, handlers of signals that end a process, collection of garbage, recursion,
    start of processes, arguments, and where modules are looked for.
    """
    mask, collects, depth = _mask(), gc.isenabled(), sys.getrecursionlimit()
    starts, temporary = multiprocessing.get_start_method(allow_none=True), tempfile.tempdir
    arguments, places = list(sys.argv), list(sys.path)
    is_main = threading.current_thread() is threading.main_thread()
    handlers = {each: signal.getsignal(each) for each in ENDING} if is_main else {}
    # Code that sets it without `force`, as is usual, may do so once: whoever did before, it was another.
    multiprocessing.set_start_method(None, force=True)
    try:
        yield
    finally:
        os.umask(mask)
        (gc.enable if collects else gc.disable)()
        sys.setrecursionlimit(depth)
        tempfile.tempdir, sys.argv = temporary, arguments
        if not set(places).issubset(sys.path):
            # What was added stays: a module that added it is imported once.
            sys.path[:] = places + [each for each in sys.path if each not in places]
        multiprocessing.set_start_method(starts, force=True)
        for each, handler in handlers.items():
            if handler is not None and signal.getsignal(each) != handler:
                signal.signal(each, handler)


def _mask() -> int:
    """That of new files, which can only be read by setting it."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


@contextmanager
def _logging() -> Iterator[None]:
    """Levels of all loggers there are, handlers of the root, and what `logging.disable` keeps back."""
    root, disabled = logging.getLogger(), logging.root.manager.disable
    found = [root, *(each for each in root.manager.loggerDict.values() if isinstance(each, logging.Logger))]
    levels, handlers = [each.level for each in found], list(root.handlers)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        for each, level in zip(found, levels, strict=True):
            if each.level != level:
                each.setLevel(level)
        if logging.root.manager.disable != disabled:
            logging.disable(disabled)


@contextmanager
def _generator(seed: int) -> Iterator[None]:
    before = random.getstate()
    random.seed(seed)
    try:
        yield
    finally:
        random.setstate(before)


@contextmanager
def _numpy(seed: int) -> Iterator[None]:
    import numpy as np

    before, errors = np.random.get_state(), np.geterr()  # noqa: NPY002 - the global generator is meant
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002
        np.seterr(**errors)


def _torch(seed: int) -> AbstractContextManager[None]:
    from trainables.torch_state import torch_state

    return torch_state(seed)


_LIBRARIES: Final[Mapping[str, Keep]] = {"numpy": _numpy, "torch": _torch}


@contextmanager
def _when_loaded(library: str, then: Callable[[], None]) -> Iterator[None]:
    """Inside, `then` is called once the library has been loaded, if it is."""
    finder = _Finder(library, then)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.meta_path.remove(finder)


class _Finder:
    """Finds one module where it would be found without this, once."""

    def __init__(self, name: str, then: Callable[[], None]) -> None:
        self._name, self._then = name, then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:  # noqa: ARG002
        """As of Python's finders."""
        if name != self._name:
            return None
        with suppress(ValueError):
            sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_then(module: Any) -> None:
            # Several may wait for one library; the first of them takes away what all have set.
            vars(loader).pop("exec_module", None)
            execute(module)
            self._then()

        loader.exec_module = execute_then
        return spec
