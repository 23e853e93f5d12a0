"""`pytest --haltsweep FOLDER`: every spec is a test item that is planned, proved and trained for one step.

    pytest --haltsweep experiments/                             all specs below the folder, with all profiles
    pytest --haltsweep experiments/listops-o.yaml::small        one profile of one spec
    pytest --haltsweep experiments/ -k "plan and not runtime"   as written, without profiles, but for some

Without `--haltsweep` nothing is collected, and nothing but this file is imported.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from orchestrator.plan.probe import Probe

OPTION = "haltsweep"
SUFFIXES = (".yaml", ".yml")
AS_WRITTEN = "plan"
"""Name of the item for a spec without any of its profiles."""
PROBE: "pytest.StashKey[Probe]" = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The switch."""
    parser.getgroup("haltsweep", "specs as tests").addoption(
        "--haltsweep",
        action="store_true",
        dest=OPTION,
        help="collect every YAML file as a spec: plan it, prove its arms, take one training step of each",
    )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "SpecCollector | None":
    """Every YAML file, if asked for."""
    if not parent.config.getoption(OPTION) or file_path.suffix not in SUFFIXES:
        return None
    return SpecCollector.from_parent(parent, path=file_path)


class SpecCollector(pytest.File):
    """One spec file: itself and each of its profiles."""

    def collect(self) -> Iterator["SpecItem"]:
        """The spec as written first, then its profiles in their order."""
        from orchestrator.spec.load import profile_names

        yield SpecItem.from_parent(self, name=AS_WRITTEN, profile=None)
        for profile in profile_names(self.path):
            yield SpecItem.from_parent(self, name=profile, profile=profile)


class SpecItem(pytest.Item):
    """A spec, perhaps with a profile: passes if it can be planned, proved and trained."""

    def __init__(self, *, profile: str | None, **given: Any) -> None:
        super().__init__(**given)
        self.profile = profile

    def runtest(self) -> None:
        """Plan and rehearse. Raises InputError with all faults."""
        from orchestrator.spec.load import read_spec

        source = read_spec(self._shown, profile=self.profile)
        # Not before the file is known to be a spec: these load torch.
        from orchestrator.drivers.rehearsal import rehearse
        from orchestrator.plan.planner import plan
        from orchestrator.plan.probe import Probe

        # One for all specs of the run: what was built for one need not be built for the next.
        probe = self.config.stash.setdefault(PROBE, Probe())
        rehearse(source, plan(source, probe=probe))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """What the planner says, without our own call stack; anything else is a mistake of ours, with it."""
        from orchestrator.errors import HaltsweepError

        if isinstance(excinfo.value, HaltsweepError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """File and heading of a failure."""
        profile = f" with the profile {self.profile}" if self.profile else ""
        return self.path, None, f"{self._shown}{profile}"

    @property
    def _shown(self) -> Path:
        """The file as one would type it: relative to where pytest was started, if it lies below."""
        start = self.config.invocation_params.dir
        return self.path.relative_to(start) if self.path.is_relative_to(start) else self.path
