"""Source files of the repository, which tests of the source read once."""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).parents[2]
PACKAGES = ("haltsweep", "orchestrator", "search_spaces", "trainables")
TEXT_SUFFIXES = {".py", ".md", ".toml", ".yaml", ".yml", ".txt", ".cfg", ""}
Node = TypeVar("Node", bound=ast.AST)


@cache
def product_files() -> tuple[Path, ...]:
    """Return every Python file of the distribution, relative to the root."""
    return tuple(path for package in PACKAGES for path in _python(ROOT / package))


@cache
def python_files() -> tuple[Path, ...]:
    """Return every Python file."""
    return (*product_files(), *_python(ROOT / "tests"))


@cache
def text_files() -> tuple[Path, ...]:
    """Return every text file tracked by git; outside a checkout, every Python file."""
    git_result = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True, check=False
    )
    if git_result.returncode:
        return python_files()
    names = map(Path, git_result.stdout.split("\0"))
    return tuple(path for path in names if path.suffix in TEXT_SUFFIXES and (ROOT / path).is_file())


@cache
def text(path: Path) -> str:
    """Return the content of the file."""
    return (ROOT / path).read_text(encoding="utf-8", errors="replace")


@cache
def syntax_tree(path: Path) -> ast.Module:
    """Return the syntax tree of the file."""
    return ast.parse(text(path), str(path))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return all nodes of the syntax tree, cached because traversal is slow."""
    return tuple(ast.walk(syntax_tree(path)))


def nodes_of_kind(*kinds: type[Node], among: tuple[Path, ...] | None = None) -> Iterator[tuple[str, Node]]:
    """Yield all nodes of some kinds in the packages, or in the files `among`, each with `file:line`."""
    for path in product_files() if among is None else among:
        for node in nodes(path):
            if isinstance(node, kinds):
                yield f"{path}:{node.lineno}", node  # type: ignore[attr-defined]


@cache
def calls() -> tuple[tuple[str, str, dict[str | None, ast.expr]], ...]:
    """Return location, dotted name and keywords of every named call in the packages."""
    named_calls = ((place, ast.unparse(node.func), node.keywords) for place, node in nodes_of_kind(ast.Call))
    return tuple(
        (place, name, {keyword.arg: keyword.value for keyword in keywords})
        for place, name, keywords in named_calls
        if re.fullmatch(r"[\w.]+", name)
    )


def module_name(path: Path) -> str:
    """Return the name of the module of a file."""
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__")


@cache
def imported_names(path: Path) -> frozenset[str]:
    """Return top-level names of all imports of the file."""
    names = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return frozenset(names)


def _python(folder: Path) -> list[Path]:
    return [path.relative_to(ROOT) for path in sorted(folder.rglob("*.py"))]
