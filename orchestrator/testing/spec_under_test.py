"""Provide a spec to tests: its plan, arms, trials and cost estimate, and snapshots of its expansion."""

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
from orchestrator.plan.types import Arm, ArmEstimate, Plan
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
    """The spec at `path` with a profile and overrides, planned at first use.

    All properties raise SpecError or PlanError with all faults.
    """

    path: Path
    overrides: tuple[str, ...] = ()
    profile: str | None = None
    keep: Callable[[str, str], None] | None = None
    """Function that compares a text with the snapshot of a name."""
    _once: list[tuple[SpecFile, Plan]] = field(default_factory=list, init=False, compare=False, repr=False)

    @property
    def source(self) -> SpecFile:
        """Return the spec as read."""
        __tracebackhide__ = True
        return self._plan_once()[0]

    @property
    def plan(self) -> Plan:
        """Return the plan of the spec."""
        __tracebackhide__ = True
        return self._plan_once()[1]

    @property
    def arms(self) -> Mapping[str, Arm]:
        """Return the arms by name, the baseline first, with their settings, changes and searched fields."""
        return {arm.name: arm for arm in self.plan.arms}

    @property
    def trials(self) -> tuple[PlannedTrial, ...]:
        """Return the planned trials, ordered by phase and arm."""
        return self.plan.trials

    @property
    def price(self) -> Mapping[str, ArmEstimate]:
        """Return cost estimates by arm: trials of each phase, FLOPs of a step, memory."""
        return {estimate.arm: estimate for estimate in self.plan.prices}

    @property
    def expansion(self) -> str:
        """Return the output of `haltsweep plan` and a line with a digest of all trial ids."""
        __tracebackhide__ = True
        file = io.StringIO()
        console = Console(file=file, width=COLUMNS, color_system=None, highlight=False, emoji=False)
        for part in render(self.plan):
            console.print(part)
        lines = [line.rstrip() for line in file.getvalue().splitlines()]
        ids = digest("trials", [trial.trial_id for trial in self.trials])
        return "\n".join([*lines, f"{len(self.trials):,} trials with the ids {ids}", ""])

    def check_snapshot(self, name: str = "") -> None:
        """Fail unless the expansion equals the stored snapshot.

        Args:
            name: Name of the snapshot, by default the name of the sweep.
        """
        __tracebackhide__ = True
        assert self.keep is not None, "made by the fixture sweep_spec"
        self.keep(self.expansion, name or self.plan.name)

    def _plan_once(self) -> tuple[SpecFile, Plan]:
        __tracebackhide__ = True
        if not self._once:
            try:
                self._once.append(plan_file(self.path, self.overrides, self.profile))
            except HaltsweepError as error:
                # The fault is in the spec, so the traceback of the planner is of no use.
                raise error.with_traceback(None) from None
        return self._once[0]


def as_texts(overrides: Overrides) -> tuple[str, ...]:
    """Return overrides as texts of the command line. Raise TypeError if they are not overrides."""
    __tracebackhide__ = True
    if isinstance(overrides, Mapping):
        return tuple(f"{path}={_as_text(path, value)}" for path, value in overrides.items())
    if isinstance(overrides, str) or not all(isinstance(override, str) for override in overrides):
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
    """Return the spec at `path` in the first folder of `folders` that contains it.

    Raises:
        TypeError: `path` is not a path.
        FileNotFoundError: No folder has the file.
    """
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
    message = f"neither {' nor '.join(map(str, places))}" if len(places) > 1 else f"no {places[0]}"
    raise FileNotFoundError(f"a test of a spec needs a spec, found {message}")


def snapshot_file(test_file: Path, test: str, name: str) -> Path:
    """Return the path of a test's snapshot: `snapshots/<file>.<test>.<name>.txt` next to the test file."""
    parts = (test_file.stem, test, name)
    return test_file.parent / FOLDER / f"{'.'.join(_ODD.sub('-', part).strip('-') for part in parts)}.txt"


def check_snapshot(file: Path, text: str, *, update: bool) -> None:
    """Write `text` if `update` is true, else raise AssertionError unless `file` has this text."""
    __tracebackhide__ = True
    if update:
        file.parent.mkdir(exist_ok=True)
        write_atomically(file, text)
        return
    if not file.is_file():
        raise AssertionError(
            f"the snapshot {file} does not exist; write it with pytest {UPDATE}, read it, and commit it"
        )
    stored_text = file.read_text(encoding="utf-8")
    if stored_text != text:
        names = ("snapshot", "now")
        lines = difflib.unified_diff(stored_text.splitlines(), text.splitlines(), *names, lineterm="", n=1)
        message = "\n".join(lines)
        raise AssertionError(
            f"the expansion must be that of {file}; if it was changed on purpose, pytest {UPDATE}\n{message}"
        )
