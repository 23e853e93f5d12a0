"""The files of code from outside; to find them nothing is imported but the packages that a module is in."""

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

OURS = ("haltsweep", "orchestrator", "search_spaces", "trainables")
"""Packages of haltsweep."""
SCRIPT = ".py"
"""Suffix of the path of a script, which a spec may name instead of a module."""
_SUFFIXES = (SCRIPT, *EXTENSION_SUFFIXES)
_INSTALLED = {"site-packages", "dist-packages"}
_SENT = "py_modules_files"
"""Folder of Ray: each module or package that a launch sent lies in a folder of its own in it."""


@dataclass(frozen=True, slots=True)
class CodeParts:
    """What a module consists of."""

    places: dict[Path, Path] = field(default_factory=dict)
    """Files of modules and folders of packages; of each the path below the folder it is imported from."""
    installed: bool = False
    """Whether it is where packages are installed."""


def names_file(name: str | Path) -> bool:
    """Whether there is a file at this path; what is too long for a path names none."""
    try:
        return Path(name).is_file()
    except OSError:  # `Path.is_file` passes on what is no sign of absence, ENAMETOOLONG among it
        return False


def source_files(module: str) -> list[Path]:
    """Files of `parts_of`, of packages all; in the same order wherever they lie."""
    files = {
        file: place / file.relative_to(part)
        for part, place in parts_of(module).places.items()
        for file in _files_of(part)
    }
    return sorted(files, key=lambda file: (files[file], file))


def mentions(module: str, word: str) -> bool:
    """Return whether the source of `module`, or of modules in its folder that it imports, has `word`."""
    sources = (file for file in source_files(module) if file.suffix == ".py")
    return any(word in file.read_text(encoding="utf-8", errors="replace") for file in sources)


def parts_of(module: str) -> CodeParts:
    """The top-level package of `module`, or the module itself, and what it imports that lies beside it.

    What modules and packages import is followed, be it modules or packages, but for ours. A folder without
    `__init__.py` may hold anything: in one, a module stands for itself. The imports of what is installed are
    not followed. Empty where there is no such file. `module` may be the path of a script too.
    """
    if module.endswith(SCRIPT):
        script = Path(module).resolve()
        return CodeParts(_with_imported(script, script.parent)) if script.is_file() else CodeParts()
    top = _found(module.partition(".")[0])
    file = top or _found(module)
    if file is None:
        return CodeParts()
    root = file.parents[0 if top else module.count(".")]
    if top is not None and top.name == "__init__.py":
        file, root = top.parent, top.parents[1]
    if _INSTALLED.intersection(root.parts):
        return CodeParts({file: file.relative_to(root)}, installed=True)
    return CodeParts(_with_imported(file, root))


def _found(module: str) -> Path | None:
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):  # ValueError: made by a program, not found in a file
        return None
    return Path(spec.origin) if spec is not None and spec.has_location and spec.origin is not None else None


def _files_of(part: Path) -> list[Path]:
    if not part.is_dir():
        return [part]
    return [each for each in part.rglob("*") if each.name.endswith(_SUFFIXES) and each.is_file()]


def _with_imported(first: Path, root: Path) -> dict[Path, Path]:
    """`first` and what it imports beside it, directly or by what it imports; each with its place."""
    sent = [each for each in map(Path, sys.path) if _SENT in each.parts]
    # The folder of a trainable's file is searched too, see `trainables.custom.extensions.imported`.
    roots = sent if root in sent else list(dict.fromkeys([root, first.parent if first.is_file() else root]))
    found, waiting = {first: first.relative_to(root)}, [(first, root)]
    while waiting:
        part, root = waiting.pop()
        for file in _files_of(part):
            for new, place, home in _beside(file, root, roots):
                if new not in found and not any(parent in found for parent in new.parents):
                    found[new] = place
                    waiting.append((new, home))
    return found


def _beside(file: Path, root: Path, roots: list[Path]) -> Iterator[tuple[Path, Path, Path]]:
    """What `file`, which was found below `root`, imports: a path, its place below a root, and that root."""
    for level, names in _imports(file, file.stat().st_mtime_ns):
        start = file.parents[level - 1] if 0 < level <= len(file.parents) else None
        if start is None or start == root:
            looked = [(each, each) for each in roots]
        else:
            looked = [(start, root)] if start.is_relative_to(root) else []
        for folder, home in looked:
            new = _named(folder, names)
            if new is not None and (folder != home or _is_found_in(home, names[0])):
                yield new, new.relative_to(home), home
                break


def _is_found_in(root: Path, name: str) -> bool:
    """Whether Python finds the top-level `name` below `root` and not in a place that comes first."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return False
    if spec is None:
        return False
    places = [*(spec.submodule_search_locations or ())]
    if spec.has_location and spec.origin is not None:
        places.append(spec.origin)
    return any(Path(place).is_relative_to(root) for place in places)


def _named(folder: Path, names: Sequence[str]) -> Path | None:
    """The module or package that comes first on the way from `folder` along `names`."""
    for name in names:
        if (folder / f"{name}.py").is_file():
            return folder / f"{name}.py"
        if (folder / name / "__init__.py").is_file():
            return folder / name
        folder /= name
    return None


@cache
def _imports(file: Path, changed_at: int) -> list[tuple[int, tuple[str, ...]]]:  # noqa: ARG001 another file then
    """Of each import in `file` how many folders up, and names of packages, modules, perhaps of a value."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError):  # compiled, or it cannot be imported either
        return []
    found: list[tuple[int, tuple[str, ...]]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(0, tuple(each.name.split("."))) for each in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = node.module.split(".") if node.module else []
            found += [(node.level, (*start, each.name)) for each in node.names]
    return [(level, names) for level, names in found if level or names[0] not in OURS]
