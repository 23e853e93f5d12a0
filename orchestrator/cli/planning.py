"""Reads and plans a spec for the commands, and says how far that is when it takes its time."""

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
"""A plan of a few arms is made sooner, on a busy machine too."""
_KINDS: Mapping[str, catalog.Kind] = {"model": "models", "task": "tasks"}


@contextmanager
def planning(code: Sequence[str] = ()) -> Iterator[Waiting]:
    """To be open while a plan is made that looks at this code of others, which may never come back.

    What that prints goes where messages go: only the answer of a command is its output, which others read.
    """
    doing = "planning" + (f" with {', '.join(code)}" if code else "")
    hint = "Ctrl-C ends it, nothing is written"
    with redirect_stdout(sys.stderr), Waiting(hint, doing, first_s=FIRST_S) as waiting:
        yield waiting


def left_out(source: "SpecFile") -> str:
    """What overrides and a profile leave out of the comparison with papers, as a sentence; else ""."""
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
    """As `plan_file`; sweeps whose best points are tried first are looked for in `runs`. `probe` is made when
    it is needed.

    Raises `SpecError` or `PlanError` with all faults at once; without PyTorch where the file holds no spec,
    or sizes that nothing could have.
    """
    # Here, since the commands that read no spec are to start at once.
    from orchestrator.plan.reading import read_to_plan

    read = read_to_plan(path, overrides, profile)
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
    """Return the custom code that planning the spec at `path` may import; none for a file that is no spec."""
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
    """Return whether the text `value` at this place can name custom code; paths of settings do not."""
    if at[-1] == "trainable":
        return True
    if at[-1] == "name" and at[-2] in _KINDS:
        return catalog.is_outside(_KINDS[at[-2]], value)
    return is_module_name(value) and value.partition(".")[0] not in ROOTS
