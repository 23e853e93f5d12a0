"""Send code from the launch folder that is not installed to every node, with Ray's runtime environment."""

import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from trainables.custom.source_files import find_code_parts


def code_to_send(modules: Iterable[str], folder: Path) -> dict[str, str]:
    """Return packages and modules of `modules` below `folder`, by their place on Python's path.

    Installed code is excluded, since every node must have it. Code in other folders is excluded, too.
    """
    root = folder.resolve()
    code_files: dict[str, str] = {}
    for parts in map(find_code_parts, modules):
        if not parts.installed:
            for path, place in parts.places.items():
                if path.resolve().is_relative_to(root):
                    code_files[place.as_posix()] = str(path.resolve())
    return dict(sorted(code_files.items()))


@contextmanager
def runtime_environment(sent: Mapping[str, str]) -> Iterator[dict[str, Any] | None]:
    """Yield Ray's runtime environment with the code in `sent`; None if `sent` is empty.

    Ray sends modules and packages. A folder without `__init__.py` may contain unrelated files, so Ray
    receives a copy that contains only the imported code.
    """
    if not sent:
        yield None
        return
    with tempfile.TemporaryDirectory(prefix="haltsweep-code-") as copies:
        module_paths = []
        for place, path in sent.items():
            if "/" not in place:
                module_paths.append(path)
                continue
            copy = Path(copies, place)
            copy.parent.mkdir(parents=True, exist_ok=True)
            if Path(path).is_dir():
                shutil.copytree(path, copy, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copyfile(path, copy)
        yield {"py_modules": [*module_paths, *sorted(map(str, Path(copies).iterdir()))]}
