"""Count the code of the repository: `python -m tests.architecture.code_counts [FOLDER]`.

Code lines exclude blank lines, comments and docstrings. An import closure is the set of haltsweep's files
that an import statement reaches, also inside functions.
"""

import ast
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

PACKAGES = ("orchestrator", "trainables", "search_spaces", "haltsweep", "tests")
SKIPPED = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT}
CLOSURES = {
    "haltsweep launch": "orchestrator/cli/commands/launch.py",
    "the simplest model": "trainables/models/transformer.py",
}


def count_code_lines(source: bytes) -> int:
    """Return the number of lines of `source` that hold code."""
    lines = {
        line
        for token in tokenize.tokenize(BytesIO(source).readline)
        if token.type not in SKIPPED and token.type != tokenize.ENCODING
        for line in range(token.start[0], token.end[0] + 1)
        if token.string
    }
    return len(lines - _docstring_lines(ast.parse(source)))


def _docstring_lines(tree: ast.Module) -> set[int]:
    """Return the lines of texts that are statements: docstrings, also those of attributes."""
    return {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def count_functions(tree: ast.Module) -> int:
    """Return the number of functions and methods."""
    return sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in ast.walk(tree))


def count_inner_imports(tree: ast.Module) -> int:
    """Return the number of import statements inside functions."""
    return sum(
        isinstance(inner, ast.Import | ast.ImportFrom)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(node)
    )


def closure(root: Path, start: str) -> set[Path]:
    """Return the files below `root` that `start` imports, directly or not."""
    files, unread_files = set[Path](), [root / start]
    while unread_files:
        file = unread_files.pop()
        if file not in files:
            files.add(file)
            unread_files += [
                source for name in _imported(file) if (source := _file_of(root, name)) is not None
            ]
    return files


def _imported(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _file_of(root: Path, module: str) -> Path | None:
    if module.partition(".")[0] not in PACKAGES[:-1]:
        return None
    path = root.joinpath(*module.split("."))
    return next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)


def report(root: Path) -> Iterator[str]:
    """Yield the lines of a table of all counts."""
    for package in PACKAGES:
        files = sorted((root / package).rglob("*.py"))
        if not files:
            continue
        sources = [file.read_bytes() for file in files]
        trees = [ast.parse(source) for source in sources]
        folders = Counter(file.parent.relative_to(root) for file in files)
        folder, most = folders.most_common(1)[0]
        repeated = sum(
            count > 1 for name, count in Counter(file.name for file in files).items() if name[0] != "_"
        )
        yield (
            f"{package}: {len(files)} files, {sum(map(count_code_lines, sources)):,} code lines, "
            f"{sum(map(count_functions, trees)):,} functions, "
            f"{sum(map(count_inner_imports, trees))} imports inside functions, "
            f"largest folder {folder} with {most} files, {repeated} repeated file names"
        )
    for name, start in CLOSURES.items():
        imported_files = closure(root, start)
        lines = sum(len(file.read_bytes().splitlines()) for file in imported_files)
        yield f"{name} imports {len(imported_files)} files with {lines:,} lines"


if __name__ == "__main__":
    for line in report(Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd()):
        sys.stdout.write(f"{line}\n")
