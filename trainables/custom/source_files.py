"""Find the source files of user code. Only the packages that contain the module are imported."""

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.util import find_spec
from pathlib import Path

OWN_PACKAGES = ("haltsweep", "orchestrator", "search_spaces", "trainables")
"""Packages of haltsweep."""
SCRIPT = ".py"
"""Suffix of the path of a script, which a spec may name instead of a module."""
_SCRIPT_COMMAND = re.compile(r"(.+?\.py)((?: +\S+)*)")
"""Matches the path of a script and the arguments after it."""
_RELATIVE_IMPORT = re.compile(r"^\s*from \.", re.MULTILINE)
_SUFFIXES = (SCRIPT, *EXTENSION_SUFFIXES)
_LIBRARY_FOLDERS = {"site-packages", "dist-packages"}
_RAY_FOLDER = "py_modules_files"
"""Folder of Ray that contains each sent module or package in a separate folder."""


@dataclass(frozen=True, slots=True)
class CodeParts:
    """Source files and packages of a module and of the local code that it imports."""

    places: dict[Path, Path] = field(default_factory=dict)
    """Files of modules and folders of packages, each with its path below the folder from which it is
    imported.
    """
    installed: bool = False
    """Whether the module is in a folder of installed packages."""


def script_command(trainable: str) -> tuple[str, list[str]] | None:
    """Return the path of a script and its arguments before all flags, as in `main.py fit` or `main.py data`.

    Returns:
        None if `trainable` names no script.
    """
    match = _SCRIPT_COMMAND.fullmatch(trainable)
    return (match[1], match[2].split()) if match else None


def is_existing_file(name: str | Path) -> bool:
    """Return whether a file exists at this path; False for a name that is too long for a path."""
    try:
        return Path(name).is_file()
    except OSError:  # `Path.is_file` raises errors other than absence, e.g. ENAMETOOLONG
        return False


def source_files(module: str) -> list[Path]:
    """Return the files of `find_code_parts`, including all files of packages, in a fixed order."""
    files = {
        file: place / file.relative_to(part)
        for part, place in find_code_parts(module).places.items()
        for file in _files_of(part)
    }
    return sorted(files, key=lambda file: (files[file], file))


def source_contains(module: str, word: str) -> bool:
    """Return whether `word` occurs in the source of `module` or of a module in its folder that it imports."""
    sources = (file for file in source_files(module) if file.suffix == ".py")
    return any(word in file.read_text(encoding="utf-8", errors="replace") for file in sources)


def package_root(script: Path) -> Path:
    """Return the folder above the package of a script with relative imports; else the script's own folder."""
    folder = script.parent
    if not _RELATIVE_IMPORT.search(script.read_text(encoding="utf-8", errors="replace")):
        return folder
    folder = folder.parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def find_code_parts(module: str) -> CodeParts:
    """Return the top-level package of `module`, or the module, and the local code that it imports.

    Imports of modules and packages are followed, except those of haltsweep and of installed packages. A
    folder without `__init__.py` may contain unrelated files, so only the named module in it counts. The
    result is empty if no such file exists. `module` may also be the path of a script, with arguments.
    """
    if (command := script_command(module)) is not None:
        script = Path(command[0]).resolve()
        if not script.is_file():
            return CodeParts()
        return CodeParts(_follow_imports(script, package_root(script), Path.cwd()))
    top = _module_file(module.partition(".")[0])
    file = top or _module_file(module)
    if file is None:
        return CodeParts()
    root = file.parents[0 if top else module.count(".")]
    if top is not None and top.name == "__init__.py":
        file, root = top.parent, top.parents[1]
    if _LIBRARY_FOLDERS.intersection(root.parts):
        return CodeParts({file: file.relative_to(root)}, installed=True)
    return CodeParts(_follow_imports(file, root))


def _module_file(module: str) -> Path | None:
    try:
        spec = find_spec(module)
    # ValueError: the module was created by a program, not loaded from a file
    except (ImportError, ValueError):
        return None
    return Path(spec.origin) if spec is not None and spec.has_location and spec.origin is not None else None


def _files_of(part: Path) -> list[Path]:
    if not part.is_dir():
        return [part]
    return [file for file in part.rglob("*") if file.name.endswith(_SUFFIXES) and file.is_file()]


def _follow_imports(script: Path, root: Path, *further_roots: Path) -> dict[Path, Path]:
    """Map `script` and the local code that it imports, also indirectly, to paths below import folders."""
    sent_folders = [path for path in map(Path, sys.path) if _RAY_FOLDER in path.parts]
    # The folder of a trainable's file is searched too, see `trainables.custom.extensions.import_named`.
    roots = (
        sent_folders
        if root in sent_folders
        else list(dict.fromkeys([root, script.parent if script.is_file() else root, *further_roots]))
    )
    places, waiting = {script: script.relative_to(root)}, [(script, root)]
    while waiting:
        part, root = waiting.pop()
        for file in _files_of(part):
            for imported_file, place, home in _local_imports(file, root, roots):
                if imported_file not in places and not any(
                    parent in places for parent in imported_file.parents
                ):
                    places[imported_file] = place
                    waiting.append((imported_file, home))
    return places


def _local_imports(file: Path, root: Path, roots: list[Path]) -> Iterator[tuple[Path, Path, Path]]:
    """Yield each local import of `file`: its path, its path relative to a root, and that root."""
    for level, names in _imports(file, file.stat().st_mtime_ns):
        start = file.parents[level - 1] if 0 < level <= len(file.parents) else None
        if start is None or start == root:
            search_folders = [(search_root, search_root) for search_root in roots]
        else:
            search_folders = [(start, root)] if start.is_relative_to(root) else []
        for folder, home in search_folders:
            module_file = _first_module(folder, names)
            if module_file is not None and (folder != home or is_found_in(home, names[0])):
                yield module_file, module_file.relative_to(home), home
                break


def is_found_in(root: Path, name: str) -> bool:
    """Return whether Python imports the top-level `name` from a file below `root`."""
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


def _first_module(folder: Path, names: Sequence[str]) -> Path | None:
    """Return the first module or package among `folder/names[0]`, `folder/names[0]/names[1]`, and so on."""
    for name in names:
        if (folder / f"{name}.py").is_file():
            return folder / f"{name}.py"
        if (folder / name / "__init__.py").is_file():
            return folder / name
        folder /= name
    return None


@cache
def _imports(file: Path, changed_at: int) -> list[tuple[int, tuple[str, ...]]]:  # noqa: ARG001 part of the cache key
    """Return for each import in `file` its number of leading dots and the parts of the imported name."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, OSError):  # the file is compiled, or cannot be imported either
        return []
    imports: list[tuple[int, tuple[str, ...]]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [(0, tuple(alias.name.split("."))) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = node.module.split(".") if node.module else []
            imports += [(node.level, (*start, alias.name)) for alias in node.names]
    return [(level, names) for level, names in imports if level or names[0] not in OWN_PACKAGES]
