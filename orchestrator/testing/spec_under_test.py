"""A spec as a test sees it: its plan, arms, trials and price, and a text of all, compared with a kept one."""

import difflib
import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from yaml import YAMLError

from orchestrator.errors import HaltsweepError
from orchestrator.identity import digest
from orchestrator.plan.display.render import render
from orchestrator.plan.planner import plan_file
from orchestrator.plan.types import Arm, ArmPrice, Plan
from orchestrator.spec.load import SpecFile
from orchestrator.spec.scalars import dump
from orchestrator.trials import PlannedTrial
from trainables.atomic import write_atomically

COLUMNS = 100
Overrides = Mapping[str, Any] | Sequence[str]
"""Values by path, or texts as on the command line: `baseline.train.steps=20`."""
FOLDER = "snapshots"
UPDATE = "--snapshot-update"
_ODD = re.compile(r"[^\w.=-]+")


@dataclass(frozen=True)
class SpecUnderTest:
    """The spec at `path` with a profile and overrides; planned when it is first asked for its plan.

    All but `path` raise SpecError or PlanError with all faults.
    """

    path: Path
    overrides: tuple[str, ...] = ()
    profile: str | None = None
    keep: Callable[[str, str], None] | None = None
    """Compares a text with the snapshot of a name."""
    _once: list[tuple[SpecFile, Plan]] = field(default_factory=list, init=False, compare=False, repr=False)

    @property
    def source(self) -> SpecFile:
        """The spec as read."""
        __tracebackhide__ = True
        return self._plan_once()[0]

    @property
    def plan(self) -> Plan:
        """All that will run."""
        __tracebackhide__ = True
        return self._plan_once()[1]

    @property
    def arms(self) -> Mapping[str, Arm]:
        """By name, the baseline first: settings, changes, what is searched."""
        return {arm.name: arm for arm in self.plan.arms}

    @property
    def trials(self) -> tuple[PlannedTrial, ...]:
        """Phase by phase, arm by arm."""
        return self.plan.trials

    @property
    def price(self) -> Mapping[str, ArmPrice]:
        """By arm: trials of each phase, FLOPs of a step, memory."""
        return {price.arm: price for price in self.plan.prices}

    @property
    def expansion(self) -> str:
        """What `haltsweep plan` shows, and a line that changes with any trial's id."""
        __tracebackhide__ = True
        file = io.StringIO()
        console = Console(file=file, width=COLUMNS, color_system=None, highlight=False, emoji=False)
        for part in render(self.plan):
            console.print(part)
        lines = [line.rstrip() for line in file.getvalue().splitlines()]
        ids = digest("trials", [each.trial_id for each in self.trials])
        return "\n".join([*lines, f"{len(self.trials):,} trials with the ids {ids}", ""])

    def check_snapshot(self, name: str = "") -> None:
        """Fail unless the expansion is the one kept beside the test, under `name` or that of the sweep."""
        __tracebackhide__ = True
        assert self.keep is not None, "made by the fixture sweep_spec"
        self.keep(self.expansion, name or self.plan.name)

    def _plan_once(self) -> tuple[SpecFile, Plan]:
        __tracebackhide__ = True
        if not self._once:
            try:
                self._once.append(plan_file(self.path, self.overrides, self.profile))
            except HaltsweepError as error:
                # What is wrong is in the spec: where the planner was is no help.
                raise error.with_traceback(None) from None
        return self._once[0]


def as_texts(overrides: Overrides) -> tuple[str, ...]:
    """Overrides as the command line has them. Raises TypeError for what are none."""
    __tracebackhide__ = True
    if isinstance(overrides, Mapping):
        return tuple(f"{path}={_as_text(path, value)}" for path, value in overrides.items())
    if isinstance(overrides, str) or not all(isinstance(each, str) for each in overrides):
        raise TypeError(
            f"overrides must be values by path, or a list of texts like 'train.lr=1', got {overrides!r}"
        )
    return tuple(overrides)


def _as_text(path: str, value: Any) -> str:
    __tracebackhide__ = True
    try:
        return dump(value, flow=True)
    except YAMLError as error:
        raise TypeError(
            f"overrides must be values that a spec can hold, got {value!r} for {path}; give numbers, texts, "
            "truth values, or lists and mappings of these"
        ) from error


def spec_file(path: str | Path, folders: Sequence[Path]) -> Path:
    """The spec at `path` in the first of `folders` that has it. Raises TypeError, FileNotFoundError."""
    __tracebackhide__ = True
    if not isinstance(path, str | Path):
        raise TypeError(f"a spec must be named by its path, got {path!r}")
    places = list(dict.fromkeys(folder / path for folder in folders))
    for place in places:
        if place.is_file():
            return place
    if folder := next((place for place in places if place.is_dir()), None):
        raise FileNotFoundError(
            f"a spec must be a file to be tested, got the folder {folder}; name one in it"
        )
    found = f"neither {' nor '.join(map(str, places))}" if len(places) > 1 else f"no {places[0]}"
    raise FileNotFoundError(f"a spec must be there to be tested, found {found}")


def snapshot_file(test_file: Path, test: str, name: str) -> Path:
    """Where a test keeps the snapshot called `name`: `snapshots/<file>.<test>.<name>.txt` beside it."""
    parts = (test_file.stem, test, name)
    return test_file.parent / FOLDER / f"{'.'.join(_ODD.sub('-', part).strip('-') for part in parts)}.txt"


def check_snapshot(file: Path, text: str, *, update: bool) -> None:
    """Write `text` if `update`, else fail unless it is what `file` holds. Raises AssertionError."""
    __tracebackhide__ = True
    if update:
        file.parent.mkdir(exist_ok=True)
        write_atomically(file, text)
        return
    if not file.is_file():
        raise AssertionError(
            f"there must be a snapshot to compare with, and {file} is not there; "
            f"write it with pytest {UPDATE}, read it, and commit it"
        )
    kept = file.read_text(encoding="utf-8")
    if kept != text:
        names = ("snapshot", "now")
        lines = difflib.unified_diff(kept.splitlines(), text.splitlines(), *names, lineterm="", n=1)
        message = "\n".join(lines)
        raise AssertionError(
            f"the expansion must be that of {file}; if it was changed on purpose, pytest {UPDATE}\n{message}"
        )
