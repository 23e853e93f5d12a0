"""Specs as tests, and fixtures for tests of specs.

`pytest --haltsweep FOLDER`: every spec is a test item that is planned, proved and trained for one step.

    pytest --haltsweep experiments/                             all specs below the folder, with all profiles
    pytest --haltsweep experiments/listops-o.yaml::small        one profile of one spec
    pytest --haltsweep experiments/ -k "plan and not runtime"   as written, without profiles, but for some

Without `--haltsweep` nothing is collected, and nothing but this file is imported.

In tests of your own:

    def test_gates(sweep_spec, chaos):
        spec = sweep_spec("gates.yaml", {"baseline.train.steps": 20})
        assert list(spec.arms) == ["baseline", "minus-gate"]
        assert spec.price["baseline"].trials == {"search": 8, "confirm": 6}
        spec.check_snapshot()
        chaos(spec, kill_at=5)
"""

from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from orchestrator.plan.ablation_check.probe import Probe
    from orchestrator.testing.chaos import Sessions, Survived
    from orchestrator.testing.spec_under_test import Overrides, SpecUnderTest

OPTION = "haltsweep"
SUFFIXES = (".yaml", ".yml")
UPDATE = "--snapshot-update"
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


def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser) -> None:  # noqa: ARG001
    """The switch of snapshots, unless another plug-in has one of that name: all are loaded by now."""
    groups = [parser._anonymous, *parser._groups]
    if UPDATE not in {name for group in groups for option in group.options for name in option.names()}:
        parser.getgroup("haltsweep").addoption(
            UPDATE, action="store_true", help="write the snapshots of specs anew (spec.check_snapshot)"
        )


@pytest.fixture
def sweep_spec(request: pytest.FixtureRequest) -> "Callable[..., SpecUnderTest]":
    """`sweep_spec(path, overrides=(), profile=None)`: a spec with its plan, arms, trials and price.

    `path` is relative to the test's file or to where pytest was started. `overrides` are values by path, or
    texts as on the command line. `check_snapshot(name)` of what is returned compares its expansion with the
    one kept beside the test.
    """
    from orchestrator.testing.spec_under_test import SpecUnderTest, as_texts, spec_file

    taken: set[Path] = set()

    def keep(text: str, name: str) -> None:
        from orchestrator.testing.spec_under_test import check_snapshot, snapshot_file

        __tracebackhide__ = True
        file = snapshot_file(request.path, request.node.name, name)
        if file in taken:
            raise ValueError(f"a snapshot must have a name of its own in its test, got {name!r} twice")
        taken.add(file)
        check_snapshot(file, text, update=bool(request.config.getoption(UPDATE)))

    def read(path: str | Path, overrides: "Overrides" = (), profile: str | None = None) -> SpecUnderTest:
        __tracebackhide__ = True
        found = spec_file(path, (request.path.parent, request.config.invocation_params.dir))
        tested = SpecUnderTest(found, as_texts(overrides), profile, keep)
        assert tested.plan, "a faulty spec is reported here, not where its plan is first looked at"
        return tested

    return read


@pytest.fixture(scope="session")
def _chaos_sessions() -> "Iterator[Sessions]":
    """One process for all tests that need it, since it loads longer than a small sweep takes."""
    from orchestrator.testing.chaos import Sessions

    with Sessions() as sessions:
        yield sessions


@pytest.fixture
def chaos(
    sweep_spec: "Callable[..., SpecUnderTest]",
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    _chaos_sessions: "Sessions",
) -> "Callable[..., Survived]":
    """`chaos(spec, kill_at=k)`: the sweep in small, killed at event k of its ledger, finds the same.

    `spec` is a path, or what `sweep_spec` returned; several events in `kill_at` are a run each. With
    `small=False` it is run as it is. Metrics that measure the machine are named in `ignore`. None of its
    sessions, three for one event and two for each more, may take longer than `timeout_s`.
    """
    runs = 0

    def run(
        spec: "SpecUnderTest | str | Path",
        *,
        kill_at: int | Collection[int],
        small: bool = True,
        ignore: Collection[str] = (),
        timeout_s: float | None = None,
    ) -> "Survived":
        from orchestrator.testing import chaos as of_specs

        nonlocal runs
        __tracebackhide__ = True
        runs += 1
        tested = sweep_spec(spec) if isinstance(spec, str | Path) else spec
        folder, data = tmp_path / f"chaos-{runs}", tmp_path_factory.getbasetemp() / "haltsweep-data"
        run_as = of_specs.small(tested) if small else tested
        limit_s = of_specs.TIMEOUT_S if timeout_s is None else timeout_s
        sessions = _chaos_sessions
        return of_specs.chaos(run_as, kill_at, folder, data, ignore, sessions=sessions, timeout_s=limit_s)

    return run


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
        """Plan and rehearse. Raises InputError with all faults, AssertionError if the plan is not read as it
        is written."""
        from orchestrator.spec.load import read_spec

        source = read_spec(self._shown, profile=self.profile)
        # Not before the file is known to be a spec: these load torch.
        from orchestrator.execution.trial.rehearsal import rehearse
        from orchestrator.plan.ablation_check.probe import Probe
        from orchestrator.plan.planner import plan
        from orchestrator.plan.serialise import from_json, to_json

        # One for all specs of the run: what was built for one need not be built for the next. Faults alone
        # are shown.
        probe = self.config.stash.setdefault(PROBE, Probe(faults_only=True))
        planned = plan(source, probe=probe)
        assert from_json(to_json(planned)) == planned
        rehearse(source, planned)

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
