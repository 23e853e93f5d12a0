"""Seed the global generators of Python, NumPy and PyTorch for a trial, and restore them when it is resumed.

Imports neither NumPy nor PyTorch itself: a library that is imported later is seeded or restored right after
its import.
"""

import functools
import os
import random
import sys
from collections.abc import Callable, Mapping
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from trainables.seeds import derive

STREAM: Final = "global"
"""First part of the names of the streams that seed global generators."""
SEED_END: Final = 2**32
"""Exclusive upper bound of seeds that NumPy accepts."""
State = Mapping[str, Any]
"""State of each imported library's generator, as JSON values."""


def seed_generators(seed: int) -> None:
    """Seed the global generators of Python, NumPy and PyTorch for a trial.

    Args:
        seed: Seed of the trial. Each library gets a separate seed that is derived from this seed.
    """
    random.seed(derive(seed, STREAM, "random"))
    _when_loaded("numpy", lambda numpy: numpy.random.seed(derive(seed, STREAM, "numpy") % SEED_END))
    _when_loaded("torch", lambda torch: torch.manual_seed(derive(seed, STREAM, "torch") % SEED_END))


def generator_state() -> State:
    """Return the states of the global generators, including those of CUDA devices if CUDA is in use."""
    version, words, gauss = random.getstate()
    state: dict[str, Any] = {"random": [version, list(words), gauss]}
    if numpy := sys.modules.get("numpy"):
        numpy_state = numpy.random.get_state()
        if isinstance(numpy_state, tuple):  # otherwise the user has replaced NumPy's default generator
            state["numpy"] = [numpy_state[0], numpy_state[1].tolist(), *numpy_state[2:]]
    if torch := sys.modules.get("torch"):
        state["torch"] = _as_text(torch.get_rng_state())
        if torch.cuda.is_initialized():
            state["cuda"] = [_as_text(device_state) for device_state in torch.cuda.get_rng_state_all()]
    return state


def restore_generators(state: State) -> None:
    """Restore the states that `generator_state` returned.

    Args:
        state: The states, also after a round trip through JSON.
    """

    def restore_torch(torch: Any) -> None:
        torch.set_rng_state(_as_tensor(torch, state["torch"]))
        # Ignore devices that this machine lacks; restore others as soon as CUDA is initialised.
        for device, text in enumerate(state.get("cuda", ())[: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(_as_tensor(torch, text), device)

    version, words, gauss = state["random"]
    random.setstate((version, tuple(words), gauss))
    if "numpy" in state:
        _when_loaded("numpy", lambda numpy: numpy.random.set_state(tuple(state["numpy"])))
    if "torch" in state:
        _when_loaded("torch", restore_torch)


def _as_text(tensor: Any) -> str:
    return bytes(tensor.tolist()).hex()


def _as_tensor(torch: Any, text: str) -> Any:
    return torch.tensor(list(bytes.fromhex(text)), dtype=torch.uint8, device="cpu")


_RESUMED: Final[dict[str, tuple[State, set[str]]]] = {}
"""By folder of a resumed trial, the states to restore and the files that the trial has read."""


def restore_when_read(folder: Path, state: State) -> None:
    """Restore `state` when this process first reads each file in `folder`, until `stop_restoring`.

    A resumed trial builds its model, which draws numbers, then reads its files, then trains.
    """
    _RESUMED[os.path.realpath(folder)] = state, set()
    _watch_files()


def stop_restoring(folder: Path) -> None:
    """Restore no states any more when files in `folder` are read."""
    _RESUMED.pop(os.path.realpath(folder), None)


@functools.cache
def _watch_files() -> None:
    """Install an audit hook for opened files. Python cannot remove audit hooks."""

    def handle_event(event: str, arguments: tuple[Any, ...]) -> None:
        if not _RESUMED or event != "open" or isinstance(arguments[0], int):
            return
        path = os.path.realpath(os.fsdecode(arguments[0]))
        for folder, (state, read_files) in _RESUMED.items():
            reads = arguments[2] & (os.O_WRONLY | os.O_TRUNC | os.O_APPEND) == 0
            if reads and path.startswith(folder + os.sep) and path not in read_files:
                read_files.add(path)
                restore_generators(state)

    sys.addaudithook(handle_event)


_WAITING: Final[dict[str, list[Callable[[Any], object]]]] = {}
"""Functions to call right after the import of a library."""


def _when_loaded(library: str, action: Callable[[Any], object]) -> None:
    """Call `action` with the library, now if it is imported, else right after its import."""
    if library in sys.modules:
        action(sys.modules[library])
        return
    if not any(isinstance(finder, _LibraryFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _LibraryFinder())
    _WAITING.setdefault(library, []).append(action)


class _LibraryFinder:
    """Import finder that calls the functions in `_WAITING` for a library right after its import."""

    def __init__(self) -> None:
        self._asks_others = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:  # noqa: ARG002
        """Return the spec of the other finders, with a loader that also calls the waiting functions."""
        if name not in _WAITING or self._asks_others:
            return None
        self._asks_others = True
        try:
            spec = find_spec(name)
        finally:
            self._asks_others = False
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_then(module: Any) -> None:
            execute(module)
            for action in _WAITING.pop(name, ()):
                action(module)

        loader.exec_module = execute_then
        return spec
