"""Import modules of other packages, by entry point of an installed distribution or by dotted name.

A catalogue lists the files of one built-in folder and one group of entry points. A name in a spec that
contains a dot is the name of a module. It is imported from Python's search path, and last from the current
directory.
"""

import difflib
import importlib
import inspect
import os
import pkgutil
import re
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NoReturn

from trainables.custom.fork_safety import num_unforkable_threads
from trainables.custom.source_files import OWN_PACKAGES, is_existing_file, script_command

BUILT_IN_ORIGIN: Final = "haltsweep"
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
"""Pattern of valid names of entry points. A name with a dot would be the name of a module."""
LIBRARY_FOLDERS: Final = frozenset({"site-packages", "dist-packages"})
_NUM_THREADS_BY_MODULE: Final[dict[str, int]] = {}
_SPEC_MODULES: Final[set[str]] = set()
"""Modules that specs named and this process has imported."""
_UNFINISHED_IMPORTS: Final[list[str]] = []
"""Modules of specs whose import has not finished yet."""
_IMPORT_LISTENERS: Final[list[Callable[[str], None]]] = []
"""Functions that are called with a text about each import of a module that a spec names."""
SEARCHED_PLACES: Final = "where packages are installed, on PYTHONPATH and in the current directory"


class BadName(LookupError):
    """A name in a spec is not usable; the message is for the user and states a remedy."""


class UnknownName(BadName):
    """No entry has the name; the message suggests the nearest known name."""


class BadModule(BadName):
    """The module of a name cannot be imported, lacks a required attribute, or exists in two places."""


@dataclass(frozen=True, slots=True)
class EntryPoint:
    """An entry point of an installed distribution."""

    distribution: str
    """Name and version of the distribution."""
    module: str


Needs = Mapping[str, tuple[Callable[[Any], bool], str]]
"""By attribute name, a check of the value and a description of valid values."""


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All entries of one kind that a spec can name."""

    noun: str
    """Noun for one entry, e.g. `model`."""
    group: str
    """Group of entry points."""
    package: str
    """Package that contains the built-in entries, one file each."""
    built_in_names: Callable[[], Sequence[str]]
    """Function that returns the names of the built-in entries."""
    needs: Callable[[], "Needs"]
    """Function that returns the required attributes of a module of another package."""

    def names(self) -> tuple[str, ...]:
        """Return the sorted names of built-in entries and entry points, without importing them."""
        return tuple(sorted({*self.built_in_names(), *self._entry_points()}))

    def is_named(self, name: str) -> bool:
        """Return whether `name` is valid: a listed name or the name of a module."""
        return name in self.names() or is_module_name(name)

    def origin(self, name: str) -> str:
        """Return the origin of the listed `name`: `haltsweep`, or name and version of the distributions."""
        return " and ".join(entry.distribution for entry in self._places(name))

    def load(self, name: str) -> ModuleType:
        """Return the module of `name`. Raises UnknownName, BadModule."""
        if name in self.built_in_names() and name not in self._entry_points():
            return importlib.import_module(f"{self.package}.{name}")
        places = self._places(name)
        if len(places) > 1:
            definitions = " and ".join(f"{entry.module} of {entry.distribution}" for entry in places)
            raise BadModule(
                f"the {self.noun} {name!r} must have a single definition, got {definitions}; uninstall one, "
                "or give the full dotted name of the module"
            )
        if places or is_module_name(name):
            subject = f"the {self.noun} {name!r}" + (f" of {places[0].distribution}" if places else "")
            module = import_named(places[0].module if places else name, subject)
            _require_attributes(module, subject, self.needs())
            return module
        similar_names = difflib.get_close_matches(name, self.names(), n=1)
        hint = _file_hint(name) or (f" Did you mean {similar_names[0]!r}?" if similar_names else "")
        raise UnknownName(f"no {self.noun} named {name!r}.{hint} Known: {', '.join(self.names())}")

    def _places(self, name: str) -> list[EntryPoint]:
        built_in = (
            [EntryPoint(BUILT_IN_ORIGIN, f"{self.package}.{name}")] if name in self.built_in_names() else []
        )
        return built_in + list(self._entry_points().get(name, ()))

    def _entry_points(self) -> Mapping[str, tuple[EntryPoint, ...]]:
        return _entry_points(self.group, tuple(sys.path))


@cache
def _installed_entry_points(path: tuple[str, ...]) -> Any:  # noqa: ARG001 part of the cache key
    return metadata.entry_points()


@cache
def _entry_points(group: str, path: tuple[str, ...]) -> Mapping[str, tuple[EntryPoint, ...]]:
    """Return the entry points of `group` by name, except those with a name that a spec cannot contain."""
    by_name: dict[str, tuple[EntryPoint, ...]] = {}
    for entry in _installed_entry_points(path).select(group=group):
        if not NAME.fullmatch(entry.name):
            continue
        distribution = "?" if entry.dist is None else f"{entry.dist.name} {entry.dist.version}"
        by_name[entry.name] = (*by_name.get(entry.name, ()), EntryPoint(distribution, entry.value))
    return by_name


def is_module_name(name: object) -> bool:
    """Return whether `name` has the form of a dotted module name."""
    return isinstance(name, str) and "." in name and all(part.isidentifier() for part in name.split("."))


def import_named(module: str, subject: str, *, with_siblings: bool = False) -> ModuleType:
    """Import a module that a spec names.

    During the import `sys.argv` holds only the file, so that a script that parses arguments gets its
    defaults.

    Args:
        module: Dotted name.
        subject: Description of the module for messages.
        with_siblings: Whether to add the module's folder to the search path, as for a script.

    Raises:
        UnknownName: There is no such module.
        BadModule: The module cannot be imported.
    """
    if script_command(module) is not None:  # otherwise Python would import the parent package
        raise UnknownName(f"{subject} must be an existing module, got {module}{_module_hint(module)}")
    add_to_path(Path.cwd())
    is_first_import, threads = module not in sys.modules, num_unforkable_threads()
    previous_argv, sys.argv = sys.argv, [module]
    _UNFINISHED_IMPORTS.append(module)
    for listener in _IMPORT_LISTENERS:
        listener(f"importing {module}")
    try:
        with raise_instead_of_exit():
            if module not in sys.modules and (spec := find_spec(module)) is not None and spec.origin:
                sys.argv = [spec.origin]
                if with_siblings and not LIBRARY_FOLDERS.intersection(Path(spec.origin).parts):
                    add_to_path(Path(spec.origin).parent)
            result = importlib.import_module(module)
    except KeyboardInterrupt:
        raise
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise UnknownName(
                f"{subject} must be an existing module, got {module}; it is looked for {SEARCHED_PLACES}"
                f"{_module_hint(module)}"
            ) from error
        raise _import_error(subject, error) from error
    except BaseException as error:  # user code may raise anything
        raise _import_error(subject, error) from error
    finally:
        sys.argv = previous_argv
        _UNFINISHED_IMPORTS.pop()
    _SPEC_MODULES.add(module)
    if is_first_import:
        # Other threads may have ended during the import, so the difference can be negative.
        _NUM_THREADS_BY_MODULE[module] = max(0, num_unforkable_threads() - threads)
    return result


def num_started_threads(module: str) -> int:
    """Return the number of threads that the first import of `module` has left running."""
    return _NUM_THREADS_BY_MODULE.get(module, 0)


def import_state() -> tuple[list[str], dict[str, int]]:
    """Return the import path, and the number of threads that each module has left running."""
    return sys.path, _NUM_THREADS_BY_MODULE


def adopt_imports(path: Sequence[str], num_threads_by_module: Mapping[str, int]) -> None:
    """Add entries of another process's import path, and its numbers of threads by module."""
    sys.path.extend(entry for entry in path if entry not in sys.path)
    _NUM_THREADS_BY_MODULE.update(num_threads_by_module)


def announce_imports(listener: Callable[[str], None]) -> None:
    """Call `listener` before each import of a module of a spec, with a text such as `importing x.y`."""
    _IMPORT_LISTENERS.append(listener)


def is_importing() -> bool:
    """Return whether this process is importing a module of a spec."""
    return bool(_UNFINISHED_IMPORTS)


@contextmanager
def raise_instead_of_exit() -> Iterator[None]:
    """Make `os._exit` in this thread raise SystemExit inside the block, so that it can be reported."""
    original_exit, thread, process = os._exit, threading.get_ident(), os.getpid()

    def raise_exit(status: int) -> NoReturn:
        if (threading.get_ident(), os.getpid()) != (thread, process):
            original_exit(status)
        raise SystemExit(f"os._exit({status!r})")

    os._exit = raise_exit
    try:
        yield
    finally:
        os._exit = original_exit


def add_to_path(folder: Path) -> None:
    """Add `folder` to the end of the import path for the lifetime of this process.

    Workers of a Ray instance that haltsweep starts receive the `sys.path` of the launching process, including
    this folder.
    """
    if (path := str(folder.resolve())) not in sys.path:
        sys.path.append(path)
        importlib.invalidate_caches()


def shadowed_file_hint(module: ModuleType) -> str:
    """Return a hint if the current directory has another file with the name of `module`; else an empty text.

    A module in the current directory is never imported if its name is that of a standard or installed module,
    because the current directory comes last in the search path.
    """
    top = module.__name__.partition(".")[0]
    origin = getattr(sys.modules.get(top), "__file__", None)
    places = (Path.cwd() / f"{top}.py", Path.cwd() / top / "__init__.py")
    shadowed_file = next((file for file in places if file.is_file()), None)
    if shadowed_file is None or (origin is not None and Path(origin).resolve() == shadowed_file.resolve()):
        return ""
    return f". It is {origin or 'built in'}, which comes before {shadowed_file}: give that another name"


def _file_hint(name: str) -> str:
    """Return a hint with the module name of a file that `name`, a name without a dot, may refer to."""
    file = Path(name if name.endswith(".py") else f"{name}.py")
    if not is_existing_file(file) or not all(part.isidentifier() for part in file.with_suffix("").parts):
        return ""
    dotted = ".".join(file.with_suffix("").parts)
    if "." in dotted:
        return f" Did you mean {dotted!r}?"
    return f" A module name needs a dot: move {file} to a folder, e.g. mine/, and write mine.{dotted}."


def _module_hint(module: str) -> str:
    """Return a hint for a missing module: a similar name, or the required form of the name."""
    parent = module.rpartition(".")[0]
    if advice := _taken_name_advice(module):
        return f"; {advice}"
    if module.endswith(".py") and is_existing_file(module):
        return f". Name the module, not its file: {module.removesuffix('.py')}"
    if parent in sys.modules and not hasattr(sys.modules[parent], "__path__"):
        return f". {parent} is a module, not a package: write its name alone"
    folders = getattr(sys.modules.get(parent), "__path__", ())
    siblings = [f"{parent}.{sibling.name}" for sibling in pkgutil.iter_modules(folders)]
    similar_names = difflib.get_close_matches(module, siblings, n=1)
    return f". Did you mean {similar_names[0]!r}?" if similar_names else ""


def _taken_name_advice(module: str) -> str:
    """Return what to do if a folder or file of the user is named like a package of haltsweep; else empty."""
    name = module.partition(".")[0]
    own_folder = Path(__file__).parents[2] / name
    paths = (path for path in (Path(name), Path(f"{name}.py")) if path.exists())
    is_taken = name in OWN_PACKAGES and any(path.resolve() != own_folder for path in paths)
    return f"{name} is a package of haltsweep: rename your folder or file of that name" if is_taken else ""


def _import_error(subject: str, error: BaseException) -> BadModule:
    missing_name = error.name or "" if isinstance(error, ImportError) else ""
    remedy = _taken_name_advice(missing_name) or error_remedy(error) or "correct it"
    if isinstance(error, SystemExit) and _raising_module(error) != "argparse":
        remedy = "a module must not end the process when it is imported"
    return BadModule(
        f"{subject} must be a module that can be imported, got {describe_error(error)}; {remedy}"
    )


def error_remedy(error: BaseException) -> str:
    """Return a remedy for an error in user code, if its message lacks one; else empty."""
    if isinstance(error, KeyError) and _raising_module(error) == "os":
        return (
            f"the environment variable {error.args[0]} is not set: trials get the environment that "
            "`haltsweep launch` was called with, so set it there"
        )
    if isinstance(error, SystemExit) and _raising_module(error) == "argparse":
        return (
            "the argparse parser of the module failed; see its message above. A script named in a spec gets "
            "its settings as flags; an imported module gets no arguments, so every argument needs a default"
        )
    if isinstance(error, SystemExit):
        return "the code called sys.exit; its log shows where: haltsweep logs NAME TRIAL"
    if isinstance(error, ModuleNotFoundError) and error.name:
        return (
            f"install {error.name}, or set PYTHONPATH to the folder that holds it "
            f"(looked {SEARCHED_PLACES}, and in the folder of the trainable)"
        )
    return ""


def _raising_module(error: BaseException) -> str:
    """Return the name of the module that raised `error`."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    return "" if traceback is None else str(traceback.tb_frame.f_globals.get("__name__", ""))


def describe_error(error: BaseException) -> str:
    """Return file and line, class and first line of the message of `error`."""
    location = f"{error_location(error)}: " if error_location(error) else ""
    try:
        text = str(error).partition("\n")[0]
    except Exception:  # its own __str__ may be broken
        text = "(no message: its __str__ raised an exception)"
    return f"{location}{type(error).__name__}: {text}"


def custom_code_error(error: BaseException) -> str:
    """Return the message for an uncaught error of code that a spec names; empty for any other error."""
    files = {Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)}
    custom_files = [
        file for file in files if not _is_known(str(file)) and any(map(file.is_relative_to, _custom_paths()))
    ]
    if not custom_files:
        return ""
    return f"code that a spec names must not raise outside of trials, got {describe_error(error)}; correct it"


def _custom_paths() -> set[Path]:
    """Return the folders and files of modules named by specs."""
    paths: set[Path] = set()
    for name in _SPEC_MODULES:
        # Do not use getattr: a module's `__getattr__` may have raised the error.
        top_attributes, attributes = (
            vars(sys.modules.get(module, object)) for module in (name.partition(".")[0], name)
        )
        if top_attributes.get("__file__") is not None and (folders := top_attributes.get("__path__")):
            paths.update(map(Path, folders))
        elif (file := attributes.get("__file__")) is not None:
            # A folder of installed libraries also contains unrelated packages.
            paths.add(Path(file) if LIBRARY_FOLDERS.intersection(Path(file).parts) else Path(file).parent)
    return paths


def error_location(error: BaseException) -> str:
    """Return file and line that raised `error`, outside of haltsweep, Python and PyTorch; empty if none."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{display_path(error.filename)}:{error.lineno}"
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_known(frame.filename)]
    return f"{display_path(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""


def _is_known(file: str) -> bool:
    """Return whether `file` belongs to haltsweep, Python or PyTorch."""
    path = Path(file)
    torch = getattr(sys.modules.get("torch"), "__file__", None)
    package_folders = (Path(__file__).parents[2] / package for package in OWN_PACKAGES)
    libraries = [*package_folders, *([Path(torch).parent] if torch else [])]
    is_standard_library = (
        path.is_relative_to(sysconfig.get_path("stdlib")) and "site-packages" not in path.parts
    )
    return file.startswith("<frozen ") or is_standard_library or any(map(path.is_relative_to, libraries))


def display_path(file: str | Path) -> str:
    """Return a path relative to the current directory if it is below it, else the path itself."""
    path, working_folder = Path(file), Path.cwd()
    return str(path.relative_to(working_folder) if path.is_relative_to(working_folder) else path)


def _require_attributes(module: ModuleType, subject: str, needs: Needs) -> None:
    """Raise BadModule for the first required attribute that `module`, described by `subject`, lacks."""
    for name, (is_valid, description) in needs.items():
        value = getattr(module, name, None)
        if is_valid(value):
            continue
        shown_value = "nothing of that name" if value is None else repr(value)
        raise BadModule(
            f"{subject} must have {name}, {description}, got {shown_value} ({_definition(module, value)})"
        )


def _definition(module: ModuleType, value: Any) -> str:
    """Return file and line of `value`, or of the module if the value has no line."""
    file = display_path(getattr(module, "__file__", None) or module.__name__)
    if inspect.getmodule(value) is not module:
        return f"{file}:1"
    try:
        return f"{file}:{inspect.getsourcelines(value)[1]}"
    except (OSError, TypeError):
        return f"{file}:1"
