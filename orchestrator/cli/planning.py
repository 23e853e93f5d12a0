"""Read and plan a spec for commands, and display progress if planning takes long."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.cli.display.waiting import Waiting
from orchestrator.cli.earlier import found_by, spread_of
from orchestrator.spec.document import read_file
from search_spaces.paths import ROOTS
from trainables import catalog
from trainables.custom.extensions import is_module_name

if TYPE_CHECKING:
    from orchestrator.plan.ablation_check.probe import Probe
    from orchestrator.plan.types import Plan
    from orchestrator.spec.load import SpecFile

FIRST_S = 10.0
"""Seconds before progress is displayed, since small plans are faster even on a busy machine."""
_KINDS: Mapping[str, catalog.Kind] = {"model": "models", "task": "tasks"}


@contextmanager
def planning(code: Sequence[str] = ()) -> Iterator[Waiting]:
    """Display progress while a plan imports the custom code in `code`, which may never return.

    Output of that code goes to standard error, since standard output contains only the answer of a command.
    """
    doing = "planning" + (f" with {', '.join(code)}" if code else "")
    hint = "Ctrl-C ends it, nothing is written"
    with redirect_stdout(sys.stderr), Waiting(hint, doing, first_s=FIRST_S) as waiting:
        yield waiting


def left_out(source: "SpecFile") -> str:
    """Return a sentence on published results that overrides or a profile exclude; empty if none."""
    many = source.document.left_out
    if not many:
        return ""
    values = "1 published row is" if many == 1 else f"{many} published rows are"
    return (
        f"{values} left out: overrides or the profile change what the arm is trained with, or take away the "
        "reading that was published."
    )


def planned(
    path: Path,
    overrides: Sequence[str] = (),
    profile: str | None = None,
    *,
    calibrate: bool = False,
    probe: "Callable[[], Probe] | None" = None,
    runs: Path | None = None,
) -> "tuple[SpecFile, Plan]":
    """Read and plan a spec as `plan_file` does.

    Faults of the file itself are reported without importing PyTorch.

    Args:
        path: The spec file.
        overrides: Overrides of the spec.
        profile: Profile of the spec to apply.
        calibrate: Whether to time training steps of every arm.
        probe: Creates a probe when it is needed.
        runs: Folder of earlier sweeps whose best params are tried first.

    Raises:
        SpecError: The spec is invalid; the message lists all faults.
        PlanError: The plan is invalid; the message lists all faults.
    """
    # Imported here, since commands that read no spec must start quickly.
    from orchestrator.plan.plan_input import read_plannable_spec

    read = read_plannable_spec(path, overrides, profile)
    from orchestrator.plan.planner import plan_file

    with planning(outside_names(path, overrides)) as waiting:
        return plan_file(
            path,
            overrides,
            profile,
            calibrate=calibrate,
            on_progress=waiting.update,
            probe=probe() if probe is not None else None,
            found=partial(found_by, runs),
            spread_of=partial(spread_of, runs),
            read=read,
        )


def outside_names(path: Path, overrides: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the custom code that planning the spec at `path` may import; empty without a spec."""
    written = read_file(path).data
    set_here = {key: value for key, _, value in (each.partition("=") for each in overrides)}
    return tuple(dict.fromkeys((*_named_in(written, ""), *_named_in(set_here, ""))))


def _named_in(written: Any, at: str) -> Iterator[str]:
    if isinstance(written, Mapping):
        for key, value in written.items():
            yield from _named_in(value, f"{at}.{key}")
    elif isinstance(written, list):
        for value in written:
            yield from _named_in(value, at)
    elif isinstance(written, str) and _is_outside(written.strip(), at.split(".")):
        yield written.strip()


def _is_outside(value: str, at: Sequence[str]) -> bool:
    """Return whether the text `value` at this path of the spec can name custom code."""
    if at[-1] == "trainable":
        return True
    if at[-1] == "name" and at[-2] in _KINDS:
        return catalog.is_outside(_KINDS[at[-2]], value)
    return is_module_name(value) and value.partition(".")[0] not in ROOTS
