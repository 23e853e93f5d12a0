"""What every machine must have that runs trials of a sweep: asked on each of them before it gets one.

Trials of one sweep are compared with each other: they must run the same training code.
"""

import ast
import hashlib
import importlib.util
import json
import secrets
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any, Self

from orchestrator.errors import InputError, StoreError
from orchestrator.execution.checkpoints.checkpoint_stores import Elsewhere
from orchestrator.execution.datasets import content_hashes, require_task_files
from orchestrator.execution.ray.sent_code import code_to_send
from orchestrator.execution.sweep.launch_folder import DEFAULT_WORKLOAD, Setup
from orchestrator.execution.trial.worker import load_workload
from orchestrator.files.json_values import from_json_values, to_json_values
from orchestrator.files.redact import redact
from orchestrator.identity import SweepFolder
from orchestrator.plan.types import Plan
from orchestrator.provenance import OURS as HALTSWEEP
from orchestrator.provenance import provenance
from orchestrator.trials import Record
from search_spaces.wording import amount
from trainables import catalog
from trainables.custom.extensions import BadName
from trainables.custom.source_files import OURS, source_files

SAME = ("torch", "numpy")
"""Libraries whose versions change the last digits of results."""
MARK = ".haltsweep-shared-"
NODE_ID = "ray.io/node-id"
"""Label by which Ray knows a node."""
AGAIN = "install it again, or put its folder on PYTHONPATH"
"""What to do where code of others is gone."""


@dataclass(frozen=True, slots=True)
class NodeRequirements:
    """What trials of one sweep need of the machine they run on; JSON values only."""

    workload: str
    code: str
    """Digest of our code and the workload's, on the launching machine."""
    versions: Mapping[str, str]
    data_dir: str
    tasks: tuple[Mapping[str, Any], ...]
    """Settings of every task; none for a workload that is not ours."""
    models: tuple[str, ...]
    """Names of every model; none for a workload that is not ours."""
    splits: tuple[str, ...]
    """Test splits that confirmed trials read."""
    sent: Mapping[str, str]
    """Modules and packages that are not installed, and therefore sent to every node: `code_to_send`."""
    store: str | None
    """URI of the checkpoints; None: they are in the folder of sweeps, which must be shared."""
    mark: str = ""
    """A file in the folder of sweeps."""
    nonce: str = ""
    """What is in it."""
    data: Mapping[str, str] | None = None
    """Content hashes of the data on the launching machine; None: data are not built yet."""

    def to_json(self) -> str:
        """For `from_json` on another machine."""
        return json.dumps(to_json_values(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What `to_json` wrote."""
        return from_json_values(cls, json.loads(text))


@dataclass(frozen=True, slots=True)
class NodeAnswer:
    """What a machine says to `NodeRequirements`."""

    lacks: tuple[str, ...] = ()
    """Why it cannot run trials, each a clause."""
    unshared: bool = False
    """Whether one of these is the folder of sweeps."""
    differs: tuple[str, ...] = ()
    """What may change results in the last digits."""


def needs_of(plan: Plan, setup: Setup) -> NodeRequirements:
    """What the trials of `plan` need, as this machine has it."""
    ours = setup.workload == DEFAULT_WORKLOAD
    confirmed = plan.confirm.splits if plan.confirm is not None else ()
    tasks = tuple(arm.settings["task"] for arm in plan.arms) if ours else ()
    models = tuple(sorted({arm.settings["model"]["name"] for arm in plan.arms})) if ours else ()
    code = code_digest(setup.workload, _names(tasks), models)
    modules = _strangers(setup.workload, tasks, models)
    return NodeRequirements(
        workload=setup.workload,
        code=code,
        versions=_versions(),
        data_dir=str(setup.data_dir.resolve()),
        tasks=tasks,
        models=models,
        splits=tuple(confirmed),
        sent={} if setup.code is None else code_to_send(modules, Path(setup.code)),
        store=setup.checkpoints,
    )


def origin_of(plan: Plan, setup: Setup) -> dict[str, Any]:
    """Where the results of `plan` come from, as JSON values. Raises InputError."""
    needs = needs_of(plan, setup)
    modules = _strangers(setup.workload, needs.tasks, needs.models)
    return provenance(code=needs.code, code_parts=parts_of(needs), modules=modules).to_json()


def parts_of(needs: NodeRequirements) -> dict[str, str]:
    """`code_parts` of what a sweep needs, as they are here. Raises InputError."""
    return code_parts(needs.workload, _names(needs.tasks), needs.models)


@contextmanager
def marked(needs: NodeRequirements, folder: Path) -> Iterator[NodeRequirements]:
    """`needs` with a file in `folder` by which others tell that they see the same; gone afterwards.

    None is made where checkpoints are elsewhere. Raises StoreError if nothing can be written there.
    """
    if needs.store is not None:
        yield needs
        return
    mark, nonce = folder.resolve() / f"{MARK}{secrets.token_hex(8)}", secrets.token_hex(16)
    try:
        mark.write_text(nonce, encoding="utf-8")
    except OSError as error:
        raise StoreError(
            f"the folder of sweeps must be one that can be written to, got {folder}: {error}; choose another "
            "one with --runs"
        ) from error
    try:
        yield replace(needs, mark=str(mark), nonce=nonce)
    finally:
        mark.unlink(missing_ok=True)


@contextmanager
def needs_built(plan: Plan, setup: Setup, folder: SweepFolder) -> Iterator[NodeRequirements]:
    """The needs of a session that has built its data, with a mark in the sweep's folder while it is open."""
    for stale in folder.root.glob(f"{MARK}*"):
        stale.unlink(missing_ok=True)
    needs = needs_of(plan, setup)
    hashes = content_hashes(needs.tasks, needs.splits, setup.data_dir)
    with marked(replace(needs, data=hashes), folder.root) as complete:
        yield complete


def answer(needs: NodeRequirements) -> NodeAnswer:
    """What this machine lacks; where the launching machine has built its data, it builds its own first."""
    try:
        load_workload(needs.workload)
        code = code_digest(needs.workload, _names(needs.tasks), needs.models)
    except InputError as error:
        return NodeAnswer((str(error),))
    if code != needs.code:
        named = f"haltsweep, {needs.workload} or what the spec names"
        return NodeAnswer((f"its code of {named} is another one than where the launch is",))
    unshared = "" if needs.store is not None else _unshared(Path(needs.mark), needs.nonce)
    found = [unshared, _no_store(needs.store), _no_data(needs)]
    here = _versions()
    differs = [
        f"{name} {here.get(name)} instead of {version}"
        for name, version in needs.versions.items()
        if here.get(name) != version
    ]
    return NodeAnswer(tuple(filter(None, found)), bool(unshared), tuple(differs))


def code_digest(workload: str, tasks: Iterable[str] = (), models: Iterable[str] = ()) -> str:
    """Digest of all source files that trials run: ours, the workload's module, tasks and models from outside.

    Raises InputError.
    """
    theirs = (*_outside("tasks", tasks), *_outside("models", models))
    return _digest({**_ours(), **_contents((*_of_module(workload.partition(":")[0]), *theirs))})


def code_parts(workload: str, tasks: Iterable[str] = (), models: Iterable[str] = ()) -> dict[str, str]:
    """Digests of those files by what they are of; of ours and of all that comes from outside.

    So that a model that is added changes none of those before it. Raises InputError.
    """
    parts = {HALTSWEEP: _ours(), workload: _contents(_of_module(workload.partition(":")[0]))}
    parts |= {f"task {name}": _contents(_outside("tasks", [name])) for name in tasks}
    parts |= {f"model {name}": _contents(_outside("models", [name])) for name in models}
    return {name: _digest(files) for name, files in parts.items() if files}


def _digest(contents: Mapping[Path, bytes]) -> str:
    state = hashlib.blake2b(digest_size=16)
    for file, content in contents.items():
        state.update(file.name.encode() + b"\0" + content + b"\0")
    return state.hexdigest()


def _contents(files: Iterable[Path]) -> dict[Path, bytes]:
    """The syntax trees of source files: comments and formatting are no change of the code."""
    found = {}
    for file in files:
        found[file] = file.read_bytes()
        with suppress(SyntaxError, ValueError):  # compiled
            found[file] = ast.dump(ast.parse(found[file])).encode()
    return found


def _strangers(workload: str, tasks: Iterable[Mapping[str, Any]], models: Iterable[str]) -> list[str]:
    """Modules of the trainable, of tasks and of models that are not ours."""
    named = [catalog.load("tasks", name) for name in _names(tasks)]
    named += [catalog.load("models", name) for name in models]
    modules = (workload.partition(":")[0], *(each.__name__ for each in named))
    return [module for module in modules if module.partition(".")[0] not in OURS]


def _outside(kind: catalog.Kind, names: Iterable[str]) -> Iterator[Path]:
    try:
        for name in names:
            yield from catalog.outside_sources(kind, name)
    except BadName as error:
        raise InputError(f"{error}. The sweep was launched with it: {AGAIN}") from error


def _names(tasks: Iterable[Mapping[str, Any]]) -> list[str]:
    return sorted({task["name"] for task in tasks})


def _ours() -> dict[Path, bytes]:
    found = {}
    for package in OURS:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            raise InputError(f"the package {package} must be installed, and it is not")
        found.update({file: file.read_bytes() for file in sorted(Path(spec.origin).parent.rglob("*.py"))})
    return found


def _of_module(module: str) -> list[Path]:
    """Of a trainable from outside; nothing for one of ours."""
    return [] if module.partition(".")[0] in OURS else source_files(module)


def _versions() -> dict[str, str]:
    return {name: metadata.version(name) for name in SAME}


def seen(mark: Path, nonce: str) -> bool:
    """Whether this machine sees the folder that was marked."""
    try:
        return mark.read_text(encoding="utf-8") == nonce
    except OSError:
        return False


def _unshared(mark: Path, nonce: str) -> str:
    folder = mark.parent
    if not seen(mark, nonce):
        return f"it does not see the folder {folder} of the launching machine"
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return f"it cannot write to {folder} ({error.strerror or error})"


def _no_store(uri: str | None) -> str:
    if uri is None:
        return ""
    try:
        Elsewhere(uri).probe()
    except (InputError, StoreError) as error:
        return f"it cannot use the store of checkpoints ({redact(error)})"
    return ""


def _no_data(needs: NodeRequirements) -> str:
    folder = Path(needs.data_dir)
    try:
        if needs.data is not None:
            folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=next(each for each in (folder, *folder.parents) if each.exists())):
            pass
        require_task_files(needs.tasks)
        if needs.data is None:
            return ""
        found = content_hashes(needs.tasks, needs.splits, folder)
    except OSError as error:
        return f"it cannot write to {folder} ({error.strerror or error}): choose another --data"
    except Exception as error:  # whatever hinders data hinders trials
        return f"{redact(error)}"
    other = [name for name, content in needs.data.items() if found.get(name) != content]
    return f"its data differ from the launching machine's: {', '.join(other)}" if other else ""


def require_same_code(plan: Plan, known: Sequence[Record], origin: Mapping[str, Any]) -> None:
    """Raises InputError if trials have run training code from outside that is not that of `origin`.

    Another haltsweep, and trials from before these digests were kept, are no reason: the report tells them.
    """
    ran = [each.provenance.get("code_parts") or {} for each in known if each.attempts]
    for part, now in origin.get("code_parts", {}).items():
        before = Counter(each[part] for each in ran if part in each)
        if part == HALTSWEEP or not before or now in before:
            continue
        which = ", ".join(f"{digest} ({amount(count, 'trial')})" for digest, count in before.items())
        raise InputError(
            f"trials of one sweep must run the same training code, and {part} of {plan.name} was changed "
            f"since trials ran: digest {which}, now {now}; put it back, launch a new sweep under another "
            "name, or go on all the same with --changed-code, of which the report tells first"
        )
