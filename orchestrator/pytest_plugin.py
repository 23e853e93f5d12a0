"""Provide specs as test items, and fixtures for tests of specs.

`pytest --haltsweep FOLDER`: every spec is a test item that is planned, checked by the ablation check and
trained for one step.

    pytest --haltsweep experiments/                             all specs below the folder, with all profiles
    pytest --haltsweep experiments/listops-o.yaml::small        one profile of one spec
    pytest --haltsweep experiments/ -k "plan and not runtime"   specs without profiles, except some

Without `--haltsweep` no spec is collected, and only this file is imported.

In your own tests:

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
    from orchestrator.testing.chaos import ChaosResult, Sessions
    from orchestrator.testing.spec_under_test import Overrides, SpecUnderTest

OPTION = "haltsweep"
SUFFIXES = (".yaml", ".yml")
UPDATE = "--snapshot-update"
AS_WRITTEN = "plan"
"""Name of the test item for a spec without a profile."""
PROBE: "pytest.StashKey[Probe]" = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option `--haltsweep`."""
    parser.getgroup("haltsweep", "specs as tests").addoption(
        "--haltsweep",
        action="store_true",
        dest=OPTION,
        help="collect every YAML file as a spec: plan it, check its arms, train each arm for one step",
    )


def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser) -> None:  # noqa: ARG001
    """Add the option that updates snapshots, unless another plug-in, all loaded by now, has it."""
    groups = [parser._anonymous, *parser._groups]
    if UPDATE not in {name for group in groups for option in group.options for name in option.names()}:
        parser.getgroup("haltsweep").addoption(
            UPDATE, action="store_true", help="write the snapshots of specs anew (spec.check_snapshot)"
        )


@pytest.fixture
def sweep_spec(request: pytest.FixtureRequest) -> "Callable[..., SpecUnderTest]":
    """Return a function `sweep_spec(path, overrides=(), profile=None)` that reads and plans a spec.

    Its arguments and result:

    - `path` is relative to the test's file or to the folder in which pytest was started.
    - `overrides` are values by path, or texts as on the command line.
    - The result is a `SpecUnderTest` with the plan, arms, trials and cost estimate of the spec. Its method
      `check_snapshot(name)` compares the expansion of the spec with the snapshot stored next to the test.
    """
    from orchestrator.testing.spec_under_test import SpecUnderTest, as_texts, spec_file

    used_paths: set[Path] = set()

    def keep(text: str, name: str) -> None:
        from orchestrator.testing.spec_under_test import check_snapshot, snapshot_file

        __tracebackhide__ = True
        file = snapshot_file(request.path, request.node.name, name)
        if file in used_paths:
            raise ValueError(f"a snapshot must have a name of its own in its test, got {name!r} twice")
        used_paths.add(file)
        check_snapshot(file, text, update=bool(request.config.getoption(UPDATE)))

    def read(path: str | Path, overrides: "Overrides" = (), profile: str | None = None) -> SpecUnderTest:
        __tracebackhide__ = True
        spec_path = spec_file(path, (request.path.parent, request.config.invocation_params.dir))
        spec_under_test = SpecUnderTest(spec_path, as_texts(overrides), profile, keep)
        assert spec_under_test.plan, "a faulty spec is reported here, not where its plan is first looked at"
        return spec_under_test

    return read


@pytest.fixture(scope="session")
def _chaos_sessions() -> "Iterator[Sessions]":
    """Provide one process for all tests that need it, since its start takes longer than a small sweep."""
    from orchestrator.testing.chaos import Sessions

    with Sessions() as sessions:
        yield sessions


@pytest.fixture
def chaos(
    sweep_spec: "Callable[..., SpecUnderTest]",
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    _chaos_sessions: "Sessions",
) -> "Callable[..., ChaosResult]":
    """Return a function `chaos(spec, kill_at=k)` that checks that a killed sweep can be resumed.

    It runs a small version of the sweep, kills it at event k of its ledger, resumes it, and fails unless the
    results match an undisturbed run. Arguments of the function:

    - `spec` is a path or a result of `sweep_spec`.
    - `kill_at` is the number of an event, or several numbers; each is a separate run.
    - `small=False` runs the sweep at its full size.
    - `ignore` names metrics that measure the machine and may differ.
    - `timeout_s` is the limit in seconds of each session: three for one event and two for each further event.
    """
    runs = 0

    def run(
        spec: "SpecUnderTest | str | Path",
        *,
        kill_at: int | Collection[int],
        small: bool = True,
        ignore: Collection[str] = (),
        timeout_s: float | None = None,
    ) -> "ChaosResult":
        from orchestrator.testing import chaos as of_specs

        nonlocal runs
        __tracebackhide__ = True
        runs += 1
        spec_under_test = sweep_spec(spec) if isinstance(spec, str | Path) else spec
        folder, data = tmp_path / f"chaos-{runs}", tmp_path_factory.getbasetemp() / "haltsweep-data"
        run_as = of_specs.small(spec_under_test) if small else spec_under_test
        limit_s = of_specs.TIMEOUT_S if timeout_s is None else timeout_s
        sessions = _chaos_sessions
        return of_specs.chaos(run_as, kill_at, folder, data, ignore, sessions=sessions, timeout_s=limit_s)

    return run


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "SpecCollector | None":
    """Collect every YAML file if `--haltsweep` is given."""
    if not parent.config.getoption(OPTION) or file_path.suffix not in SUFFIXES:
        return None
    return SpecCollector.from_parent(parent, path=file_path)


class SpecCollector(pytest.File):
    """A spec file, with one item without a profile and one item per profile."""

    def collect(self) -> Iterator["SpecItem"]:
        """Yield the spec without a profile first, then its profiles in their order."""
        from orchestrator.spec.load import profile_names

        yield SpecItem.from_parent(self, name=AS_WRITTEN, profile=None)
        for profile in profile_names(self.path):
            yield SpecItem.from_parent(self, name=profile, profile=profile)


class SpecItem(pytest.Item):
    """A spec with at most one profile; passes if it can be planned, checked and trained."""

    def __init__(self, *, profile: str | None, **value: Any) -> None:
        super().__init__(**value)
        self.profile = profile

    def runtest(self) -> None:
        """Plan and rehearse the spec.

        Raises:
            InputError: The spec has faults; the message has all of them.
            AssertionError: The plan differs after it was written and read again.
        """
        from orchestrator.spec.load import read_spec

        source = read_spec(self._displayed_path, profile=self.profile)
        # Imported only once the file is known to be a spec, since these modules load torch.
        from orchestrator.execution.trial.rehearsal import rehearse
        from orchestrator.plan.ablation_check.probe import Probe
        from orchestrator.plan.planner import plan
        from orchestrator.plan.serialise import from_json, to_json

        # All specs share one probe, so that models built for one spec are reused for the next. Only faults
        # are reported.
        probe = self.config.stash.setdefault(PROBE, Probe(faults_only=True))
        planned = plan(source, probe=probe)
        assert from_json(to_json(planned)) == planned
        rehearse(source, planned)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the message of a haltsweep error without a traceback; other errors keep theirs."""
        from orchestrator.errors import HaltsweepError

        if isinstance(excinfo.value, HaltsweepError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, None, str]:
        """Return the file and heading of a failure."""
        profile = f" with the profile {self.profile}" if self.profile else ""
        return self.path, None, f"{self._displayed_path}{profile}"

    @property
    def _displayed_path(self) -> Path:
        """Return the file relative to the folder in which pytest was started, if it is inside that folder."""
        start = self.config.invocation_params.dir
        return self.path.relative_to(start) if self.path.is_relative_to(start) else self.path
