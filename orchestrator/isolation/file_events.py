"""Call functions before Python code of this process opens or changes a file, by audit events."""

import os
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC
NO_DESCRIPTOR = (-1, None)
"""Values of `dir_fd` in audit events for a path relative to the working directory."""
REPLACED = frozenset({"os.rename", "os.link", "os.symlink"})
"""Audit events whose second argument is the path that is created or replaced."""
REMOVED = frozenset({"os.remove", "shutil.rmtree"})
DATABASE_OPENED = "sqlite3.connect"
PROGRAMS_STARTED = frozenset({"subprocess.Popen", "os.system", "os.posix_spawn", "os.exec", "os.spawn"})


@dataclass(frozen=True)
class FileListener:
    """Callbacks before a file is read or changed; an exception from a callback prevents it."""

    on_read: Callable[[str], None]
    """Called with the path of a file that is opened for reading only."""
    on_write: Callable[[str], None]
    """Called with the path of a file whose content changes; a link denotes its target."""
    on_replace: Callable[[str], None]
    """Called with the path of an entry that is replaced, removed or the target of a rename.

    A link denotes itself.
    """
    on_database: Callable[[str], None]
    """Called with the path of a file that is opened by `sqlite3`, which may then read and change it."""
    on_program: Callable[[], None]
    """Called before another program starts; changes by that program are not reported."""

    def listen(self) -> None:
        """Listen until the process ends."""
        nested, is_wrapped = threading.local(), self._wrap_torch_save()

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            nonlocal is_wrapped
            if (event != "open" and event not in _HANDLED) or getattr(nested, "is_handling", False):
                return
            if not is_wrapped:
                is_wrapped = self._wrap_torch_save()
            nested.is_handling = True
            try:
                self._handle(event, arguments)
            finally:
                nested.is_handling = False

        sys.addaudithook(hook)

    def _wrap_torch_save(self) -> bool:
        """Wrap `torch.save`, which opens files in native code; return whether torch is imported."""
        torch: Any = sys.modules.get("torch")
        save = getattr(torch, "save", None)
        if save is None:
            return False

        def checked_save(obj: Any, f: Any, *arguments: Any, **options: Any) -> None:
            if _is_path(f):
                self.on_write(os.fsdecode(f))
            save(obj, f, *arguments, **options)

        torch.save = checked_save
        return True

    def _handle(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("open", "os.truncate"):
            path, mode, flags = arguments if event == "open" else (arguments[0], "w", None)
            if _is_path(path):
                by_flags = isinstance(flags, int)
                writes = flags & WRITE_FLAGS if by_flags else any(letter in mode for letter in "wax+")
                (self.on_write if writes else self.on_read)(os.fsdecode(path))
        elif event in PROGRAMS_STARTED:
            self.on_program()
        elif event == DATABASE_OPENED:
            path = os.fsdecode(arguments[0]) if _is_path(arguments[0]) else ""
            path = path.removeprefix("file:").partition("?")[0] if path.startswith("file:") else path
            if path not in ("", ":memory:"):
                self.on_database(path)
        else:
            path, descriptor = arguments[1 if event in REPLACED else 0], arguments[-1]
            if descriptor in NO_DESCRIPTOR and _is_path(path):
                for file in _files_of(os.fsdecode(path)) if event == "shutil.rmtree" else [os.fsdecode(path)]:
                    if event in REPLACED or os.path.lexists(file):
                        self.on_replace(file)


_HANDLED = REPLACED | REMOVED | PROGRAMS_STARTED | {"os.truncate", DATABASE_OPENED}


def _is_path(path: object) -> bool:
    return isinstance(path, str | bytes | os.PathLike)


def _files_of(folder: str) -> list[str]:
    """Return all files below a folder; empty for a link, since `shutil.rmtree` refuses links."""
    walked = () if Path(folder).is_symlink() else os.walk(folder)
    return [str(Path(root, name)) for root, _, names in walked for name in names]
