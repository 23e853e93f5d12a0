"""Check that a sweep that is killed and resumed gives the same results as an undisturbed one."""

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import Event, EventKind
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import Plan
from orchestrator.testing.chaos_session import ChaosSession
from orchestrator.testing.spec_under_test import SpecUnderTest
from orchestrator.trials import OutcomeKind, numbered
from search_spaces.grid import NAME as GRID
from trainables.training import NONDETERMINISTIC_METRICS

TRIALS, SEEDS, REPEATS = 2, 2, 2
"""Size of a small sweep: trials per search, seeds per confirmation, repeats of the search."""
STEPS: Final = {"steps": 4, "report_every": 2, "batch_size": 4, "valid_examples": 20}
ALWAYS: Final = {"resources.checkpoint_seconds": 0.001}
TIMEOUT_S = 600.0
"""Time limit of each session in seconds: undisturbed, killed and resumed sessions each have it."""
CURRENT_TEST: Final = "PYTEST_CURRENT_TEST"
SHOWN = 5
"""Maximum number of differences in the error message."""
Log = Mapping[str, Mapping[str, Any]]
"""Compared values by trial and name, e.g. `valid/accuracy of step 20`."""


@dataclass(frozen=True, slots=True)
class ChaosResult:
    """The results of a sweep that was killed and resumed."""

    events: int
    """Number of ledger events of the undisturbed sweep."""
    trials: int
    outcomes: Mapping[str, OutcomeKind]
    """Outcomes by trial id."""


def chaos(
    spec: SpecUnderTest,
    kill_at: int | Collection[int],
    folder: Path,
    data: Path,
    ignore: Collection[str] = (),
    *,
    sessions: "Sessions",
    timeout_s: float = TIMEOUT_S,
) -> ChaosResult:
    """Run `spec` undisturbed, then kill it at event `kill_at` of its ledger, resume it and compare.

    If `kill_at` has several events, each is a separate run; the undisturbed sweep runs once. Params,
    measurements and outcomes of all trials must be equal. Wall-clock time, metrics that measure the machine
    and the metrics in `ignore` are not compared.

    Args:
        spec: The spec to run.
        kill_at: Number of a ledger event, from 1, or several numbers.
        folder: Empty folder for the sweeps.
        data: Folder for the data sets of the tasks.
        ignore: Names of metrics that may differ.
        sessions: The process that runs the sessions.
        timeout_s: Limit of each session in seconds.

    Raises:
        AssertionError: Results differ, or a session does not end.
        ValueError: `kill_at` has no such event.
        TypeError: `kill_at` is not the number of an event, or `spec` is no spec under test.
        SpecError: The spec has faults.
        PlanError: The planner found faults of the spec.
    """
    __tracebackhide__ = True
    kills = _kills(kill_at)
    if not isinstance(spec, SpecUnderTest):
        raise TypeError(f"spec must be what sweep_spec returned, or a path, got {spec!r}")
    calm = ChaosSession(str(spec.path), spec.overrides, spec.profile, str(folder / "calm"), str(data))
    sessions.timeout_s = timeout_s
    return _check_survival(spec.plan, sessions, calm, kills, ignore)


def _kills(kill_at: Any) -> tuple[int, ...]:
    """Return the events at which to kill, each once.

    Raises:
        TypeError: An event is not an integer.
        ValueError: There is no event.
    """
    __tracebackhide__ = True
    kills = tuple(kill_at) if isinstance(kill_at, Collection) and not isinstance(kill_at, str) else (kill_at,)
    if invalid_kills := [kill for kill in kills if not isinstance(kill, int) or isinstance(kill, bool)]:
        raise TypeError(f"kill_at must be the number of an event, or several, got {invalid_kills[0]!r}")
    if not kills:
        raise ValueError("kill_at must name at least one event, got none: nothing would be killed")
    return tuple(dict.fromkeys(kills))


def _check_survival(
    plan: Plan,
    sessions: "Sessions",
    calm: ChaosSession,
    kills: Collection[int],
    ignore: Collection[str],
) -> ChaosResult:
    __tracebackhide__ = True
    sessions.run(calm)
    expected = _events(plan, calm)
    for kill in kills:
        if not 1 <= kill <= len(expected):
            raise ValueError(
                f"kill_at must be from 1 to {len(expected):,}, the events of {plan.name!r}, got {kill}"
            )
    expected_outcomes = _outcomes(expected)
    if not any(event.kind is EventKind.MEASURED for event in expected):
        outcomes = ", ".join(sorted({kind.value for kind in expected_outcomes.values()})) or "no trial ended"
        raise AssertionError(f"trials of {plan.name!r} must report measurements, but none did: {outcomes}")
    for kill in kills:
        killed = replace(calm, runs=str(Path(calm.runs).with_name(f"killed-{kill}")))
        sessions.run(replace(killed, kill_at=kill))
        sessions.run(killed)
        _check_same(plan, _log(_events(plan, killed), ignore), _log(expected, ignore), kill)
    return ChaosResult(len(expected), len(expected_outcomes), expected_outcomes)


def _check_same(plan: Plan, log: Log, expected: Log, kill: int) -> None:
    """Raise AssertionError with the first differences, if there are any."""
    __tracebackhide__ = True
    differences = [*_differences(log, expected, plan)]
    if differences:
        remainder = f"\nand {len(differences) - SHOWN:,} more" if len(differences) > SHOWN else ""
        raise AssertionError(
            f"{plan.name!r} must give the same results after a kill at event {kill} and a resume\n"
            + "\n".join(differences[:SHOWN])
            + remainder
        )


def small(spec: SpecUnderTest) -> SpecUnderTest:
    """Return `spec` with two search trials, the second by its own sampler, no early stopping, and two seeds.

    With the built-in trainable the number of steps is reduced too. Steps that an arm, the grid or the search
    sets stay the same, as do those of other trainables. A checkpoint is written at every report.
    """
    full_spec = spec.source.spec
    changes: dict[str, Any] = dict(ALWAYS)
    if full_spec.search is not None:
        changes |= {"search.trials_per_arm": min(TRIALS, full_spec.search.trials_per_arm)}
        if full_spec.search.repeats > 1:
            changes |= {"search.repeats": REPEATS}
        changes |= {"search.sampler": _sampler(full_spec.search.sampler), "search.stopper": None}
    if full_spec.confirm is not None:
        changes |= {"confirm.seeds": list(full_spec.confirm.seeds)[:SEEDS], "confirm.best": 1}
    if full_spec.trainable is None:
        changes |= _fewer_steps(spec)
    texts = tuple(f"{path}={json.dumps(value)}" for path, value in changes.items())
    return replace(spec, overrides=(*spec.overrides, *texts))


def _sampler(sampler_spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampler with at most one random trial before its own first trial.

    A grid sampler needs all combinations, so it is replaced by one that can stop earlier and tries each
    combination once.
    """
    from orchestrator.search.samplers import RANDOM_TRIAL_KEYWORDS, SAMPLER, load_component

    if sampler_spec["name"] == GRID:
        return {"name": "bruteforce"}
    sampler_keywords = {key: value for key, value in sampler_spec.items() if key not in RANDOM_TRIAL_KEYWORDS}
    accepted_keywords = load_component(sampler_spec, SAMPLER).parameters
    return sampler_keywords | ({"n_startup_trials": 1} if "n_startup_trials" in accepted_keywords else {})


def _fewer_steps(spec: SpecUnderTest) -> dict[str, Any]:
    used_fields = {change.path for arm in spec.plan.arms for change in arm.changes}
    used_fields |= {dimension.path for arm in spec.plan.arms for dimension in arm.space.dimensions}
    train = spec.plan.baseline.settings["train"]
    shortened_training = {name: min(value, train.get(name) or value) for name, value in STEPS.items()}
    if train.get("batch_tokens") is not None:
        del shortened_training["batch_size"]
    if (train.get("warmup_steps") or 0) > shortened_training["steps"]:
        shortened_training["warmup_steps"] = shortened_training["steps"] // 2
    return {
        f"baseline.train.{name}": value
        for name, value in shortened_training.items()
        if f"train.{name}" not in used_fields
    }


class Sessions:
    """A process that runs sessions one at a time in forks; leaving the context kills all of them.

    The first session starts the process. It is restarted if the environment, `sys.path` or the working
    directory has changed, and after a session with an unexpected end.
    """

    def __init__(self) -> None:
        self.timeout_s = TIMEOUT_S
        self._process: subprocess.Popen[str] | None = None
        self._surroundings: object = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end_process()

    def run(self, session: ChaosSession) -> None:
        """Run the session to its end, or until it kills itself. Raise AssertionError for any other end."""
        process = self._start_process()
        try:
            self._run(process, session)
        except BaseException:
            self._end_process()
            raise

    def _start_process(self) -> "subprocess.Popen[str]":
        # The variable that pytest changes for every test is no reason for a restart.
        variables = {name: value for name, value in os.environ.items() if name != CURRENT_TEST}
        path = os.pathsep.join(filter(None, sys.path))
        surroundings = (variables, path, Path.cwd())
        if self._process is not None and self._surroundings != surroundings:
            self._end_process()
        if self._process is None:
            self._surroundings = surroundings
            self._error_output = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
            self._process = subprocess.Popen(  # our own interpreter and module  # nosec B603
                [sys.executable, "-m", "orchestrator.testing.chaos_session"],
                env=os.environ | {"PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._error_output,
                text=True,
                start_new_session=True,
            )
        return self._process

    def _end_process(self) -> None:
        if (process := self._process) is None:
            return
        self._process = None
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with self._error_output, suppress(BrokenPipeError):  # if no process read the last request
            process.__exit__(None, None, None)

    def _run(self, process: "subprocess.Popen[str]", session: ChaosSession) -> None:
        size_before = os.fstat(self._error_output.fileno()).st_size
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):  # the process is dead, which the next lines detect
            print(json.dumps(asdict(session)), file=process.stdin, flush=True)
        if not select.select([process.stdout], [], [], self.timeout_s)[0]:
            raise AssertionError(
                f"the sweep must end within {self.timeout_s:g} s, but was killed: let it train less, or "
                f"pass chaos(..., timeout_s=...); output:\n{self._read_errors(size_before)}"
            )
        reply = process.stdout.readline()
        code = int(reply) if reply else process.wait()
        if not reply or code != (0 if session.kill_at is None else -signal.SIGKILL):
            raise AssertionError(
                f"the sweep must run to its end, got exit code {code}:\n{self._read_errors(size_before)}"
            )

    def _read_errors(self, since: int) -> str:
        """Return the standard error from position `since`; the write position does not change."""
        size = os.fstat(self._error_output.fileno()).st_size
        return os.pread(self._error_output.fileno(), size - since, since).decode(errors="replace")


def _events(plan: Plan, session: ChaosSession) -> list[Event]:
    with Ledger.open(SweepFolder(Path(session.runs) / plan.name).ledger_url, plan.name) as ledger:
        return list(ledger.events())


def _outcomes(events: list[Event]) -> dict[str, OutcomeKind]:
    ends = (
        (event.trial_id or "", OutcomeKind(event.payload["kind"]))
        for event in events
        if event.kind is EventKind.ENDED
    )
    return {trial_id: kind for trial_id, kind in ends if kind.is_final}


def _log(events: list[Event], ignore: Collection[str]) -> Log:
    """Return all recorded values that must be equal in every run of a sweep."""
    entries: dict[str, dict[str, Any]] = {}
    for event in events:
        of_trial = entries.setdefault(event.trial_id or "", {})
        if event.kind is EventKind.PARAMS_ASSIGNED:
            of_trial["assignment"] = event.payload["assignment"]
        elif event.kind is EventKind.MEASURED:
            for name, value in event.payload["metrics"].items():
                if name not in NONDETERMINISTIC_METRICS and name not in ignore:
                    # Compared as text, since NaN does not equal NaN.
                    of_trial[f"{name} of step {event.payload['step']}"] = repr(value)
    for trial_id, kind in _outcomes(events).items():
        entries[trial_id]["outcome"] = kind.value
    return entries


def _differences(log: Log, expected: Log, plan: Plan) -> Iterator[str]:
    """Yield one line per difference, trial by trial in the order of the plan."""
    names = {
        trial.trial_id: f"{trial.arm}, {trial.phase} {numbered(trial.repeat, trial.number)}"
        for trial in plan.trials
    }
    for trial_id, name in names.items():
        actual_values, expected_values = log.get(trial_id, {}), expected.get(trial_id, {})
        for key in dict.fromkeys((*expected_values, *actual_values)):
            actual_value, expected_value = actual_values.get(key), expected_values.get(key)
            if actual_value != expected_value:
                yield f"{name}: {key} must be {expected_value}, got {actual_value}"
