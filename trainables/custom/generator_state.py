"""Seed the global generators of Python, NumPy and PyTorch for a trial; save and restore them with its files.

Imports neither NumPy nor PyTorch itself: a library that is imported later is seeded or restored right after
its import.
"""

import functools
import json
import os
import random
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
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
    _call_when_imported("numpy", lambda numpy: numpy.random.seed(derive(seed, STREAM, "numpy") % SEED_END))
    _call_when_imported("torch", lambda torch: torch.manual_seed(derive(seed, STREAM, "torch") % SEED_END))


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
        _call_when_imported("numpy", lambda numpy: numpy.random.set_state(tuple(state["numpy"])))
    if "torch" in state:
        _call_when_imported("torch", restore_torch)


def _as_text(tensor: Any) -> str:
    return bytes(tensor.tolist()).hex()


def _as_tensor(torch: Any, text: str) -> Any:
    return torch.tensor(list(bytes.fromhex(text)), dtype=torch.uint8, device="cpu")


@dataclass(slots=True)
class _File:
    """A file in the folder of a trial."""

    state: int
    """Index of the file's generator state."""
    steps: int
    """Number of optimizer steps before the write; UNREAD or READ for a file of the checkpoint."""
    changed_at: int = 0
    """Modification time of a file of the checkpoint, in nanoseconds."""


UNREAD: Final = -1
READ: Final = -2


class GeneratorFiles:
    """Records a generator state for each file in a trial's folder, and restores it when the file is read.

    The state is recorded when the file is written. If a report follows before the next optimizer step, the
    state at the report replaces it, since an evaluation draws random numbers too.

    A resumed trial builds its model, which draws numbers, then reads its files, then trains. So the state of
    the newest file that it has read is restored when it opens a file and after each `load_state_dict`. This
    ends with its first report or optimizer step. A trial that reads no file keeps its seeded generators.
    """

    def __init__(self, folder: Path) -> None:
        """Follow reads and writes of files in a folder, until `close`.

        Args:
            folder: Folder whose files belong to the trial.
        """
        self.caller = (0, 0)
        """Process and thread of the trial; files opened by other processes and threads are ignored."""
        self._folder = os.path.realpath(folder)
        self._states: list[State] = []
        self._files: dict[str, _File] = {}
        """Files by path relative to the folder."""
        self._steps = 0
        """Number of optimizer steps in this process."""
        self._is_resumed = False
        """Whether the trial was resumed and has neither reported nor trained since."""
        self._restored_index: int | None = None
        """Index of the newest state of a file that the resumed trial has read."""
        self._undo: list[Callable[[], object]] = []
        _OPEN_GENERATOR_FILES.append(self)
        _watch_files()
        _call_when_imported("torch", self._follow_torch)

    def save(self, file: Path) -> None:
        """Write the states of all files in the folder.

        Args:
            file: JSON file to write.
        """
        indices = {self._name(str(path)): self._state_index(path) for path in Path(self._folder).rglob("*")}
        used_indices = sorted(set(indices.values()))
        states = [self._states[index] for index in used_indices]
        files = {name: used_indices.index(index) for name, index in indices.items()}
        file.write_text(json.dumps({"states": states, "files": files}), encoding="utf-8")

    def restore(self, file: Path) -> None:
        """Load the recorded states of a checkpoint; a file's state is restored when the trial reads the file.

        Args:
            file: JSON file that `save` wrote.
        """
        saved_states = json.loads(file.read_text(encoding="utf-8"))
        self._states = saved_states["states"]
        self._files = {}
        for name, state in saved_states["files"].items():
            path = Path(self._folder, name)
            self._files[name] = _File(state, UNREAD, path.lstat().st_mtime_ns if path.exists() else 0)
        self._is_resumed = True

    def reported(self) -> None:
        """Record that the trial has reported."""
        self._end_resumption()
        latest = [file for file in self._files.values() if file.steps == self._steps]
        if self._steps and latest:
            index = self._current_state_index()
            for file in latest:
                file.state = index

    def close(self) -> None:
        """Stop recording and restoring states."""
        while self._undo:
            self._undo.pop()()
        if self in _OPEN_GENERATOR_FILES:
            _OPEN_GENERATOR_FILES.remove(self)

    def handle_open(self, path: str, flags: int) -> None:
        """Record or restore a state when a file is opened.

        Args:
            path: Any path; those outside of the folder are ignored.
            flags: Flags of `os.open`.
        """
        name = self._name(os.path.realpath(path))
        if name.startswith("..") or process_and_thread() != self.caller:
            return
        if self._is_resumed and flags & (os.O_WRONLY | os.O_TRUNC | os.O_APPEND) == 0:
            file = self._files.get(name)
            if file is not None and file.steps == UNREAD:
                file.steps = READ
                self._restored_index = max(
                    file.state, -1 if self._restored_index is None else self._restored_index
                )
                self._restore_newest_read_state()
        if flags & (os.O_WRONLY | os.O_RDWR):
            self._files[name] = _File(self._current_state_index(), self._steps)

    def handle_rename(self, source: str, destination: str) -> None:
        """Transfer the states of files when a file or its folder is renamed.

        Args:
            source: Path before.
            destination: Path afterwards.
        """
        old_name, new_name = (self._name(os.path.realpath(path)) for path in (source, destination))
        if new_name.startswith("..") or process_and_thread() != self.caller:
            return
        names = [path for path in self._files if path == old_name or path.startswith(old_name + os.sep)]
        for name in names:
            self._files[new_name + name.removeprefix(old_name)] = self._files.pop(name)
        if not names:  # the file comes from outside of the folder
            self._files[new_name] = _File(self._current_state_index(), self._steps)

    def _name(self, path: str) -> str:
        return os.path.relpath(path, self._folder)

    def _state_index(self, path: Path) -> int:
        """Return the index of a file's state, or of the current state if native code wrote the file."""
        file = self._files.get(self._name(str(path)))
        if file is None or (file.steps < 0 and path.lstat().st_mtime_ns != file.changed_at):
            return self._current_state_index()
        return file.state

    def _current_state_index(self) -> int:
        state = generator_state()
        if not self._states or self._states[-1] != state:
            self._states.append(state)
        return len(self._states) - 1

    def _restore_newest_read_state(self) -> None:
        if self._restored_index is not None:
            restore_generators(self._states[self._restored_index])

    def _end_resumption(self) -> None:
        """Stop restoring states, because the trial now draws new random numbers."""
        self._is_resumed, self._restored_index = False, None

    def _handle_step(self, *_: object) -> None:
        """Count an optimizer step."""
        self._end_resumption()
        self._steps += 1

    def _follow_torch(self, torch: Any) -> None:
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        if self not in _OPEN_GENERATOR_FILES:
            return
        self._undo.append(register_optimizer_step_pre_hook(self._handle_step).remove)
        for kind in (torch.nn.Module, torch.optim.Optimizer):
            self._undo.append(_call_after(kind, "load_state_dict", self._restore_newest_read_state))


_OPEN_GENERATOR_FILES: Final[list[GeneratorFiles]] = []


def process_and_thread() -> tuple[int, int]:
    """Return the ids of the current process and thread."""
    return os.getpid(), threading.get_ident()


def _call_after(owner: Any, name: str, callback: Callable[[], None]) -> Callable[[], None]:
    """Call `callback` after each call of the function `name` of `owner`; return a function that undoes it."""
    original = getattr(owner, name)

    @functools.wraps(original)
    def call_both(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        callback()
        return result

    setattr(owner, name, call_both)
    return lambda: setattr(owner, name, original)


@functools.cache
def _watch_files() -> None:
    """Install an audit hook for opened and renamed files. Python cannot remove audit hooks."""

    def handle_event(event: str, arguments: tuple[Any, ...]) -> None:
        if not _OPEN_GENERATOR_FILES or event not in ("open", "os.rename"):
            return
        if event == "os.rename":
            for files in _OPEN_GENERATOR_FILES:
                files.handle_rename(os.fsdecode(arguments[0]), os.fsdecode(arguments[1]))
        elif not isinstance(arguments[0], int):
            for files in _OPEN_GENERATOR_FILES:
                files.handle_open(os.fsdecode(arguments[0]), arguments[2])

    sys.addaudithook(handle_event)
    write = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    _call_when_imported("torch", lambda torch: _raise_audit_events(torch, "save", 1, "f", write))
    _call_when_imported(
        "safetensors.torch", lambda library: _raise_audit_events(library, "save_file", 1, "filename", write)
    )
    _call_when_imported(
        "safetensors.torch",
        lambda library: _raise_audit_events(library, "load_file", 0, "filename", os.O_RDONLY),
    )


def _raise_audit_events(library: Any, name: str, position: int, argument: str, flags: int) -> None:
    """Wrap a function that opens files in native code, so that it raises Python's audit event."""
    original = getattr(library, name)

    @functools.wraps(original)
    def call_with_event(*args: Any, **kwargs: Any) -> Any:
        file = args[position] if len(args) > position else kwargs.get(argument)
        if isinstance(file, str | os.PathLike):
            sys.audit("open", os.fspath(file), None, flags)
        return original(*args, **kwargs)

    setattr(library, name, call_with_event)


_IMPORT_CALLBACKS: Final[dict[str, list[Callable[[Any], object]]]] = {}
"""Functions to call right after the import of a library."""


def _call_when_imported(library: str, action: Callable[[Any], object]) -> None:
    """Call `action` with the library, now if it is imported, else right after its import."""
    if library in sys.modules:
        action(sys.modules[library])
        return
    if not any(isinstance(finder, _LibraryFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _LibraryFinder())
    _IMPORT_CALLBACKS.setdefault(library, []).append(action)


class _LibraryFinder:
    """Import finder that calls the functions in `_IMPORT_CALLBACKS` for a library right after its import."""

    def __init__(self) -> None:
        self._is_searching = False

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:  # noqa: ARG002
        """Return the spec of the other finders, with a loader that also calls the waiting functions."""
        if name not in _IMPORT_CALLBACKS or self._is_searching:
            return None
        self._is_searching = True
        try:
            spec = find_spec(name)
        finally:
            self._is_searching = False
        if spec is None or spec.loader is None:
            return spec
        loader: Any = spec.loader
        execute_module = loader.exec_module

        def execute_and_call(module: Any) -> None:
            execute_module(module)
            for action in _IMPORT_CALLBACKS.pop(name, ()):
                action(module)

        loader.exec_module = execute_and_call
        return spec
