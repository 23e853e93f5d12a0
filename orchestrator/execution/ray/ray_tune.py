"""Runs a session on Ray: Tune places trials on workers, the recorder says which and when they stop.

Our searcher asks, our scheduler hears and tells. Tune cloudpickles both when the Tuner is built and at
snapshots, so they hold a key into `_SESSIONS` and nothing alive. Tune's results are not read, its files are
thrown away.

Tune could retry lost trials (max_failures), but in Ray 2.60 one whose worker dies while it is being reset is
never started again, and Tune forgets the retries with the driver. So a lost run has ended for Tune; the
recorder decides whether the trial goes on, and then that is a new run. There is no Callback: what one could
hear the scheduler hears too, and any Callback makes Tune import MLflow.
"""

import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.exceptions import RayTaskError
from ray.tune.experiment import Trial as Run
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from orchestrator.execution.ray.node_check import NODE_ID
from orchestrator.execution.ray.ray_nodes import Nodes
from orchestrator.execution.ray.ray_trainable import DIED, OVER, REPLIES, UNFIT, WORKER_JOB, TrialActor
from orchestrator.execution.session import Hooks, NoAttempt
from orchestrator.execution.trial.jobs import JobEncoder, decode
from orchestrator.files.redact import redact
from orchestrator.trials import DeathCause, OutcomeKind

REASON_CHARACTERS = 500
RAN_LOW = "running low on memory"
"""Part of Ray's message for a worker that Ray killed because memory had run out."""
_RAYS_NAMES = re.compile(r"(class_name|actor_id|namespace|pid|ip)\b|[\^~ ]+\Z")
"""Lines that name what Ray calls things, and those that only mark places of the line above."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(slots=True)
class _Link:
    """What Tune's hooks have to do with a session."""

    session: Hooks
    orders: JobEncoder
    nodes: Nodes | None
    runs: dict[str, Run] = field(default_factory=dict)
    """Tune's runs that have not ended, by Tune's id."""
    unwritten: set[str] = field(default_factory=set)
    """Those whose workers know that the ledger is behind."""
    failure: Exception | None = None
    """What went wrong first: Tune wraps what its hooks raise, or loses it."""

    @contextmanager
    def remembered(self) -> Iterator[Hooks]:
        """The session; keeps the first exception raised inside."""
        try:
            yield self.session
        except Exception as error:
            self.failure = self.failure or error
            raise

    def kill(self, key: str) -> None:
        """Kill a worker; Tune then tells that it died."""
        actor: Any = self.runs[key].temporary_state.ray_actor
        ray.kill(actor)

    def in_state(self, state: str) -> list[str]:
        """Ids of the runs that Tune has in this state."""
        return [key for key, run in self.runs.items() if run.status == state]

    def tell_whether_written(self, run: Run, *, written: bool) -> None:
        """Before the worker is asked for more: it may save nothing that the ledger could lose."""
        if written != (run.trial_id in self.unwritten):
            return
        actor: Any = run.temporary_state.ray_actor
        actor.wait_for_ledger.remote(not written)
        (self.unwritten.discard if written else self.unwritten.add)(run.trial_id)


class _Drained(Exception):
    """The session drains, and no worker has begun what is left: Tune is not to start it any more."""


_SESSIONS: dict[str, _Link] = {}


def run_session(session: Hooks, orders: JobEncoder, scratch: Path, nodes: Nodes | None = None) -> None:
    """Run on the Ray that is connected until the session is over; Tune's own files go below `scratch`."""
    key = uuid.uuid4().hex
    _SESSIONS[key] = link = _Link(session, orders, nodes)
    try:
        _tuner(key, scratch).fit()
    except _Drained:
        pass
    except Exception as error:
        raise link.failure or error from error
    finally:
        del _SESSIONS[key]


def _tuner(key: str, scratch: Path) -> tune.Tuner:
    return tune.Tuner(
        PlacedTrial,
        tune_config=tune.TuneConfig(
            num_samples=-1,
            search_alg=Asking(key),
            scheduler=Hearing(key),
            reuse_actors=True,
            trial_dirname_creator=_short_name,
        ),
        run_config=tune.RunConfig(
            name="sweep",
            storage_path=str(scratch / "tune"),
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=0),
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),
        ),
    )


class PlacedTrial(TrialActor, tune.Trainable):
    """What Tune knows of a trial: where one may be placed."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory | None:
        """What the trial asks of the cluster; the same for all trials of a sweep."""
        if WORKER_JOB not in config:
            return None
        job = decode(config[WORKER_JOB])
        bundle = {"CPU": job.cpus, "GPU": job.gpus}
        bundles = [{name: amount for name, amount in bundle.items() if amount}]
        if not job.kept_out:
            return tune.PlacementGroupFactory(bundles)
        elsewhere = {NODE_ID: f"!in({','.join(job.kept_out)})"}
        return tune.PlacementGroupFactory(bundles, bundle_label_selector=[elsewhere])


def _short_name(run: Run) -> str:
    return str(run.trial_id)


class Asking(Searcher):
    """Asks the recorder for a trial when a slot is free."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self._key = key

    def suggest(self, trial_id: str) -> Any:
        """The encoded assignment of the next attempt, None for later, FINISHED for never."""
        link = _SESSIONS[self._key]
        with link.remembered() as session:
            attempt = session.offer(trial_id)
            if isinstance(attempt, NoAttempt):
                return Searcher.FINISHED if attempt is NoAttempt.NEVER else None
            kept_out = link.nodes.kept_out if link.nodes is not None else ()
            return {WORKER_JOB: link.orders.encode(attempt, kept_out)}

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        """The scheduler has reported it already."""

    def save(self, checkpoint_path: str) -> None:
        """Nothing to save: the ledger holds it. Tune wants a file."""
        Path(checkpoint_path).touch()

    def restore(self, checkpoint_path: str) -> None:
        """Never called: Tune's experiments are not restored."""


class Hearing(FIFOScheduler):
    """Passes reports to the recorder and its verdicts to the workers."""

    def __init__(self, key: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._key = key

    def on_trial_add(self, tune_controller: Any, trial: Run) -> None:
        """Remember the run, to see whether a worker takes it."""
        _SESSIONS[self._key].runs[trial.trial_id] = trial

    def on_trial_result(self, tune_controller: Any, trial: Run, result: dict[str, Any]) -> str:
        """Record a report. A stop is passed to the worker, which lets go and reports the end."""
        link = _SESSIONS[self._key]
        with link.remembered() as session:
            stop, written = session.reported(trial.trial_id, result[REPLIES])
            if result[DIED] is not None:
                session.lost(trial.trial_id, *result[DIED])
                return str(TrialScheduler.STOP)
            link.tell_whether_written(trial, written=written)
        if stop is not None:
            save = stop.kind is OutcomeKind.STOPPED and trial.trial_id not in link.unwritten
            actor: Any = trial.temporary_state.ray_actor
            actor.let_go.remote(stop.outcome, save)
        return str(TrialScheduler.STOP if result[OVER] else TrialScheduler.CONTINUE)

    def on_trial_complete(self, tune_controller: Any, trial: Run, result: dict[str, Any]) -> None:
        """The run is over for Tune too."""
        del _SESSIONS[self._key].runs[trial.trial_id]

    def on_trial_error(self, tune_controller: Any, trial: Run) -> None:
        """The worker died, or its node can run no trials."""
        link = _SESSIONS[self._key]
        del link.runs[trial.trial_id]
        why = _reason(trial)
        with link.remembered() as session:
            if UNFIT in why:
                session.refused(trial.trial_id)
            else:
                session.lost(trial.trial_id, why, _cause(trial, why))

    def choose_trial_to_run(self, tune_controller: Any) -> Run | None:
        """Called at every turn of Tune's loop, which starts pending runs without our help."""
        link = _SESSIONS[self._key]
        with link.remembered() as session:
            turn = session.turn(link.in_state(Run.RUNNING))
            for key in turn.silent:
                link.kill(key)
            drained = turn.draining and len(link.in_state(Run.PENDING)) == len(link.runs)
            if drained:
                session.give_up()
        if drained:
            raise _Drained
        return None


def _cause(run: Run, reason: str) -> DeathCause:
    """Return why a worker died. An exception in the worker would be raised again on another machine."""
    if RAN_LOW in reason:
        return DeathCause.MEMORY
    return DeathCause.TRIAL if isinstance(run.get_pickled_error(), RayTaskError) else DeathCause.OUTSIDE


def _reason(run: Run) -> str:
    """What Tune wrote of the failure, on one line, without the names that Ray gives to things.

    Of a long one the middle is left out: a traceback says at its end what happened.
    """
    if not run.error_file or not Path(run.error_file).is_file():
        return "Ray gave no reason"
    written = _COLOURS.sub("", Path(run.error_file).read_text(errors="replace"))
    lines = [line.strip() for line in written.splitlines()[1:]]
    text = " ".join(line for line in lines if line and not _RAYS_NAMES.match(line))
    text = redact(text.partition(" Some common causes include")[0])
    if UNFIT in text:
        return UNFIT
    if len(text) <= REASON_CHARACTERS:
        return text
    half = REASON_CHARACTERS // 2
    return f"{text[:half]} ... {text[-half:]}"
