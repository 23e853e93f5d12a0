"""The files of code from outside; to find them nothing is imported but the packages that a module is in."""

import ast
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

OURS = ("orchestrator", "search_spaces", "trainables")
"""Packages of haltsweep."""
_SUFFIXES = (".py", *EXTENSION_SUFFIXES)
_INSTALLED = {"site-packages", "dist-packages"}


def source_files(module: str) -> list[Path]:
    """Sorted files of the top-level package of `module`, or of the module and of what it imports beside it.

    Of packages all files count and no others; what modules import is followed, be it modules or packages,
    but for ours. A folder without `__init__.py` may hold anything: in one, a module stands for itself. The
    imports of what is installed are not followed.
    """
    top = _found(module.partition(".")[0])
    if top is not None and top.name == "__init__.py":
        return _of_package(top.parent)
    file = top or _found(module)
    if file is None:
        return []
    root = file.parents[0 if top else module.count(".")]
    found = {file} if _INSTALLED.intersection(root.parts) else _with_imported(file, root)
    return sorted(each for one in found for each in (_of_package(one) if one.is_dir() else [one]))


def _found(module: str) -> Path | None:
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):  # ValueError: made by a program, not found in a file
        return None
    return Path(spec.origin) if spec is not None and spec.has_location and spec.origin is not None else None


def _of_package(folder: Path) -> list[Path]:
    return sorted(each for each in folder.rglob("*") if each.name.endswith(_SUFFIXES) and each.is_file())


def _with_imported(file: Path, root: Path) -> set[Path]:
    """`file` and what it imports below `root`, directly or by modules: files, and folders of packages."""
    found, waiting = {file}, [file]
    while waiting:
        new = {*_beside(waiting.pop(), root)} - found
        found |= new
        waiting += [each for each in new if each.suffix == ".py"]
    return found


def _beside(file: Path, root: Path) -> Iterator[Path]:
    for folder, names in _imports(file, root):
        for name in names:
            if (folder / f"{name}.py").is_file():
                yield folder / f"{name}.py"
                break
            if (folder / name / "__init__.py").is_file():
                yield folder / name
                break
            folder /= name  # noqa: PLW2901 - a folder without __init__.py is a package all the same


def _imports(file: Path, root: Path) -> Iterator[tuple[Path, list[str]]]:
    """Where each import of `file` is looked for, and the names of packages, modules and perhaps a value."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError):  # compiled, or it cannot be imported either
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            dotted = (each.name.split(".") for each in node.names)
            yield from ((root, names) for names in dotted if names[0] not in OURS)
        elif isinstance(node, ast.ImportFrom):
            folder = file.parents[node.level - 1] if 0 < node.level <= len(file.parents) else root
            start = node.module.split(".") if node.module else []
            if node.level or start[0] not in OURS:
                yield from ((folder, [*start, each.name]) for each in node.names)
