"""Let trials in other processes import functions that a script or a notebook defines."""

import importlib
import importlib.util
import sys
from base64 import b64encode
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle

from orchestrator.errors import InputError
from trainables.custom.extensions import add_to_path
from trainables.custom.outside import DECLARATION_NAME

PACKAGE = "haltsweep_code"
"""Folder in the current directory for training code from notebooks."""
MODULE = '''"""Training code of the sweep {sweep}, taken from a notebook or an interactive session."""

from base64 import b64decode
from pickle import loads

globals().update(loads(b64decode("{code}")))
'''


def module_path(trainable: Any, sweep: str) -> str:
    """Return the `module:name` of a trainable for a spec.

    A function or class of a module keeps its name. If it is defined in the running script, trials import the
    script under the name of its file. Anything else is written to a new module below the current directory.

    Args:
        trainable: A function or class, or a text, which is returned unchanged.
        sweep: Name of the sweep.

    Raises:
        InputError: `trainable` is neither a function nor a class, or it cannot be pickled.
    """
    if isinstance(trainable, str):
        return trainable
    module, name = getattr(trainable, "__module__", None), getattr(trainable, "__qualname__", None)
    if not callable(trainable) or name is None:
        raise InputError(f"a trainable must be a function or a class, or its module:name, got {trainable!r}")
    source = sys.modules.get(str(module))
    if source is not None and "<" not in name:
        if module == "__main__":
            module = _module_of_script(source)
        if module is not None and _is_file_of(module, source):
            return f"{module}:{name}"
    return _write_module(trainable, source, sweep)


def _module_of_script(main: ModuleType) -> str | None:
    """Return the name under which the running script can be imported; None in an interactive session."""
    if main.__spec__ is not None:  # python -m
        return main.__spec__.name
    file = getattr(main, "__file__", None)
    if file is None or not Path(file).is_file() or hasattr(sys, "ps1"):
        return None
    script = Path(file).resolve()
    folder_parts = (
        script.with_suffix("").relative_to(Path.cwd()).parts if script.is_relative_to(Path.cwd()) else ()
    )
    if not all(part.isidentifier() for part in (*folder_parts, script.stem)):
        return None
    add_to_path(script.parent)
    return ".".join(folder_parts) or script.stem


def _is_file_of(module: str, source: ModuleType) -> bool:
    """Return whether importing the name `module` in another process loads the file of `source`."""
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return False
    file = getattr(source, "__file__", None)
    return bool(spec and spec.origin and file and Path(spec.origin).resolve() == Path(file).resolve())


def _write_module(trainable: Any, module: ModuleType | None, sweep: str) -> str:
    """Write a function and the objects that it uses to a module; return the `module:name` of the function."""
    content = {"trainable": trainable}
    if isinstance(declaration := getattr(module, DECLARATION_NAME, None), Mapping):
        content[DECLARATION_NAME] = declaration
    is_pickled_by_value = module is not None and module.__name__ != "__main__"
    try:
        if is_pickled_by_value:
            cloudpickle.register_pickle_by_value(module)
        code = b64encode(cloudpickle.dumps(content)).decode()
    except Exception as error:
        raise InputError(
            f"the training function cannot be sent to other processes: {error}; create open files, locks and "
            "connections inside of the function"
        ) from error
    finally:
        if is_pickled_by_value:
            cloudpickle.unregister_pickle_by_value(module)
    name = f"{PACKAGE}.{sweep.replace('-', '_')}"
    file = Path.cwd() / PACKAGE / f"{sweep.replace('-', '_')}.py"
    text = MODULE.format(sweep=sweep, code=code)
    if not file.is_file() or file.read_text(encoding="utf-8") != text:
        file.parent.mkdir(exist_ok=True)
        file.write_text(text, encoding="utf-8")
        # Python compares modification times in seconds, and a cell may run twice within a second.
        Path(importlib.util.cache_from_source(str(file))).unlink(missing_ok=True)
    importlib.invalidate_caches()
    sys.modules.pop(name, None)
    return f"{name}:trainable"
