"""The files of code from outside; to find them nothing is imported but the packages that a module is in."""

import ast
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

_SUFFIXES = (".py", *EXTENSION_SUFFIXES)
_INSTALLED = {"site-packages", "dist-packages"}


def source_files(module: str) -> list[Path]:
    """Sorted files of the top-level package or module of `module`, and of what these import beside it.

    A folder without `__init__.py` may hold anything: of one, the module's own file counts, and what that
    imports. The imports of what is installed are not followed.
    """
    top = _found(module.partition(".")[0])
    file = top or _found(module)
    if file is None:
        return []
    whole = top is not None and top.name == "__init__.py"
    root = file.parents[1 if whole else 0 if top else module.count(".")]
    return sorted(_with_imported(_of_package(file.parent) if whole else [file], root))


def _found(module: str) -> Path | None:
    try:
        spec = find_spec(module)
    except (ImportError, ValueError):  # ValueError: made by a program, not found in a file
        return None
    return Path(spec.origin) if spec is not None and spec.has_location and spec.origin is not None else None


def _of_package(folder: Path) -> list[Path]:
    return sorted(each for each in folder.rglob("*") if each.name.endswith(_SUFFIXES) and each.is_file())


def _with_imported(files: list[Path], root: Path) -> set[Path]:
    """`files` and those below `root` that they import, directly or through others, as is written in them."""
    found = {*files}
    waiting = [] if _INSTALLED.intersection(root.parts) else files
    while waiting:
        new = {*_beside(waiting.pop(), root)} - found
        found |= new
        waiting += new
    return found


def _beside(file: Path, root: Path) -> Iterator[Path]:
    for folder, names in _imports(file, root):
        for name in names:
            if (folder / f"{name}.py").is_file():
                yield folder / f"{name}.py"
                break
            if (folder / name / "__init__.py").is_file():
                yield from _of_package(folder / name)
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
            yield from ((root, each.name.split(".")) for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            folder = file.parents[node.level - 1] if 0 < node.level <= len(file.parents) else root
            start = node.module.split(".") if node.module else []
            yield from ((folder, [*start, each.name]) for each in node.names)
