"""Compute digests of the training code, which must be the same for all trials of a sweep on all machines."""

import ast
import hashlib
import importlib.util
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from orchestrator.errors import InputError
from orchestrator.execution.sweep.launch_folder import DEFAULT_WORKLOAD, Setup
from orchestrator.identity import digest
from orchestrator.plan.types import Plan
from orchestrator.provenance import PACKAGE_NAME as HALTSWEEP
from orchestrator.provenance import provenance
from orchestrator.trials import Record
from search_spaces.wording import amount
from trainables import catalog
from trainables.custom.extensions import BadName
from trainables.custom.source_files import OWN_PACKAGES, source_files

MISSING_REMEDY = "install it again, or put its folder on PYTHONPATH"
"""Advice in errors about missing custom code."""
NAMED_FILE_BYTES = 64 << 20
"""Maximum size of a file whose digest is compared because a setting names it."""


def tasks_and_models(plan: Plan, setup: Setup) -> tuple[tuple[Mapping[str, Any], ...], tuple[str, ...]]:
    """Return the settings of all tasks and the names of all models; both empty for a custom trainable."""
    if setup.workload != DEFAULT_WORKLOAD:
        return (), ()
    models = {arm.settings["model"]["name"] for arm in plan.arms}
    return tuple(arm.settings["task"] for arm in plan.arms), tuple(sorted(models))


def task_names(tasks: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the sorted names of tasks without duplicates."""
    return sorted({task["name"] for task in tasks})


def collect_provenance(plan: Plan, setup: Setup) -> dict[str, Any]:
    """Return the provenance of the results of `plan` as JSON values.

    Raises:
        InputError: Custom code is missing.
    """
    parts = sweep_code_parts(plan, setup)
    modules = custom_modules(setup.workload, *tasks_and_models(plan, setup))
    return provenance(code=digest(parts), code_parts=parts, modules=modules).to_json()


def sweep_code_parts(plan: Plan, setup: Setup) -> dict[str, str]:
    """Return the `code_parts` of a sweep, and a part for each file that a setting of custom code names.

    Raises:
        InputError: Custom code is missing.
    """
    tasks, models = tasks_and_models(plan, setup)
    parts = code_parts(setup.workload, task_names(tasks), models)
    if setup.workload != DEFAULT_WORKLOAD and plan.resources.working_folder == "private":
        for text in sorted({text for arm in plan.arms for text in _texts(arm.settings)}):
            if (file_digest := _digest_of_named_file(Path(setup.code or ""), text)) is not None:
                parts[f"file {text}"] = file_digest
    return parts


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in a JSON value, without keys of mappings."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(item)


def _digest_of_named_file(folder: Path, name: str) -> str | None:
    """Return the digest of a file, such as a file of settings; None if it is missing or large."""
    with suppress(OSError, ValueError):  # most texts name no file
        file = folder / name
        if file.is_file() and file.stat().st_size <= NAMED_FILE_BYTES:
            return _digest_of_files({file: file.read_bytes()})
    return None


def code_parts(workload: str, tasks: Iterable[str] = (), models: Iterable[str] = ()) -> dict[str, str]:
    """Return digests of all source files that trials run, by part of the code.

    Args:
        workload: `module:name` of the trainable.
        tasks: Names of tasks.
        models: Names of models.

    Raises:
        InputError: Custom code is missing.
    """
    parts = {HALTSWEEP: _built_in_files(), workload: _syntax_trees(_source_files(workload.partition(":")[0]))}
    parts |= {f"task {name}": _syntax_trees(_catalogue_sources("tasks", [name])) for name in tasks}
    parts |= {f"model {name}": _syntax_trees(_catalogue_sources("models", [name])) for name in models}
    return {name: _digest_of_files(files) for name, files in parts.items() if files}


def custom_modules(workload: str, tasks: Iterable[Mapping[str, Any]], models: Iterable[str]) -> list[str]:
    """Return the modules of the trainable, tasks and models that are not built in."""
    task_types = [catalog.load("tasks", name) for name in task_names(tasks)]
    task_types += [catalog.load("models", name) for name in models]
    modules = (workload.partition(":")[0], *(module_type.__name__ for module_type in task_types))
    return [module for module in modules if module.partition(".")[0] not in OWN_PACKAGES]


def require_same_code(plan: Plan, records: Sequence[Record], origin: Mapping[str, Any]) -> None:
    """Check that earlier trials of the sweep ran the same custom training code as `origin`.

    Another version of haltsweep is allowed and disclosed in reports. Trials without digests are skipped.

    Args:
        plan: The plan of the sweep.
        records: Trials in the ledger.
        origin: Current provenance, as returned by `collect_provenance`.

    Raises:
        InputError: The code has changed.
    """
    versions_of_trials = [record.provenance.get("code_parts") or {} for record in records if record.attempts]
    for part, current_digest in origin.get("code_parts", {}).items():
        counts_before = Counter(versions[part] for versions in versions_of_trials if part in versions)
        if part == HALTSWEEP or not counts_before or current_digest in counts_before:
            continue
        versions = [f"{version} ({amount(count, 'trial')})" for version, count in counts_before.items()]
        raise InputError(
            f"trials of one sweep must run the same training code, but {part} of {plan.name} changed "
            f"after trials had run: digest {', '.join(versions)}, now {current_digest}. Choose one: (1) "
            "restore the old code; (2) launch a new sweep under another name; (3) continue with "
            "--changed-code, which the report states first"
        )


def _digest_of_files(contents: Mapping[Path, bytes]) -> str:
    hasher = hashlib.blake2b(digest_size=16)
    for file, content in contents.items():
        hasher.update(file.name.encode() + b"\0" + content + b"\0")
    return hasher.hexdigest()


def _syntax_trees(files: Iterable[Path]) -> dict[Path, bytes]:
    """Return the syntax tree of each source file, which does not depend on comments and formatting."""
    contents = {}
    for file in files:
        contents[file] = file.read_bytes()
        with suppress(SyntaxError, ValueError):  # a compiled module
            contents[file] = ast.dump(ast.parse(contents[file])).encode()
    return contents


def _catalogue_sources(kind: catalog.Kind, names: Iterable[str]) -> Iterator[Path]:
    try:
        for name in names:
            yield from catalog.custom_sources(kind, name)
    except BadName as error:
        raise InputError(f"{error}. The sweep was launched with it: {MISSING_REMEDY}") from error


def _built_in_files() -> dict[Path, bytes]:
    contents = {}
    for package in OWN_PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            raise InputError(f"the package {package} is not installed")
        contents.update({file: file.read_bytes() for file in sorted(Path(spec.origin).parent.rglob("*.py"))})
    return contents


def _source_files(module: str) -> list[Path]:
    """Return the source files of a custom trainable; empty for the built-in trainable."""
    return [] if module.partition(".")[0] in OWN_PACKAGES else source_files(module)
