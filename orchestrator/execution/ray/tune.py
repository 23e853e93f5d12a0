"""Run a session on Ray: Tune places trials on actors, and the recorder decides which trials run and stop.

The searcher requests attempts from the session, and the scheduler passes reports to it. Tune pickles both
with cloudpickle when the Tuner is built and at snapshots, so they contain only a key into `_SESSIONS`.
Results and files of Tune are not read.

Tune never retries a trial (max_failures=0). In Ray 2.60 a trial whose actor dies during a reset is never
restarted, and Tune loses the count of retries with the driver. For Tune, a run ends with its actor. If the
recorder continues the trial, Tune starts a new run. No Callback is used, since any makes Tune import MLflow.
"""

import re
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.experiment import Trial as Run
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from orchestrator.execution.ray.node_check import NODE_ID_LABEL
from orchestrator.execution.ray.nodes import Nodes
from orchestrator.execution.ray.trial_actor import (
    DEATH_KEY,
    HAS_ENDED_KEY,
    REPLIES_KEY,
    UNSHARED_FOLDER_ERROR,
    WORKER_JOB_KEY,
    TrialActor,
)
from orchestrator.execution.session import NoAttempt, Session
from orchestrator.execution.trial.trial_jobs import JobEncoder, decode
from orchestrator.files.redact import redact
from orchestrator.trials import DeathCause, OutcomeKind

MAX_REASON_LENGTH = 500
LOW_MEMORY_TEXT = "running low on memory"
"""Part of Ray's message for an actor that Ray killed because memory had run out."""
TASK_ERROR_TEXT = "ray::"
"""Part of the message of an exception that code inside an actor raised: the name of Ray's task."""
_ERROR_NOISE = re.compile(
    r"^\s*(Failure #.*|(class_name|actor_id|namespace|pid|ip)\b.*|[\^~ ]+)$|\x1b\[[0-9;]*m", re.MULTILINE
)
"""Headings of Tune, lines with names that Ray assigns, marks below lines of code, and colour codes."""


@dataclass(slots=True)
class _TuneSession:
    """Objects of a session that Tune's hooks need."""

    session: Session
    orders: JobEncoder
    slots: Callable[[], int]
    nodes: Nodes | None
    runs: dict[str, Run] = field(default_factory=dict)
    """Runs of Tune that have not ended, by Tune's id."""
    unwritten: set[str] = field(default_factory=set)
    """Ids of runs whose actors must not write checkpoints because the ledger lacks reports."""
    failure: Exception | None = None
    """First exception in a hook, stored because Tune wraps or loses exceptions."""

    @contextmanager
    def store_failure(self) -> Iterator[Session]:
        """Yield the session, and store the first exception raised inside the context."""
        try:
            yield self.session
        except Exception as error:
            self.failure = self.failure or error
            raise

    def kill(self, key: str) -> None:
        """Kill an actor; Tune then reports its death."""
        actor: Any = self.runs[key].temporary_state.ray_actor
        ray.kill(actor)

    def ids_in_state(self, state: str) -> list[str]:
        """Return the ids of the runs with this Tune state."""
        return [key for key, run in self.runs.items() if run.status == state]

    def allow_checkpoints(self, run: Run, *, allowed: bool) -> None:
        """Permit or forbid the actor to write a checkpoint at its next report."""
        if allowed != (run.trial_id in self.unwritten):
            return
        actor: Any = run.temporary_state.ray_actor
        actor.wait_for_ledger.remote(not allowed)
        (self.unwritten.discard if allowed else self.unwritten.add)(run.trial_id)


class _SessionDrained(Exception):
    """Raised to end Tune when the session drains and no remaining run has started."""


_SESSIONS: dict[str, _TuneSession] = {}


def run_session(
    session: Session, orders: JobEncoder, scratch: Path, slots: Callable[[], int], nodes: Nodes | None = None
) -> None:
    """Run on the connected Ray until the session is over.

    Args:
        session: Provides attempts and receives reports.
        orders: Encoder with the settings that all attempts share.
        scratch: Folder for Tune's files.
        slots: Returns the current number of trials that fit on the cluster.
        nodes: Nodes of an existing cluster, some of which may be excluded from trials.
    """
    key = uuid.uuid4().hex
    _SESSIONS[key] = tune_session = _TuneSession(session, orders, slots, nodes)
    try:
        _make_tuner(key, scratch).fit()
    except _SessionDrained:
        pass
    except Exception as error:
        raise tune_session.failure or error from error
    finally:
        del _SESSIONS[key]


def _make_tuner(key: str, scratch: Path) -> tune.Tuner:
    return tune.Tuner(
        PlacedTrial,
        tune_config=tune.TuneConfig(
            num_samples=-1,
            search_alg=SessionSearcher(key),
            scheduler=SessionScheduler(key),
            reuse_actors=True,
            trial_dirname_creator=_run_folder_name,
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
    """Trainable of Tune: a trial actor with its resource request."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory | None:
        """Return the resources of a trial, which are the same for all trials of a sweep."""
        if WORKER_JOB_KEY not in config:
            return None
        job = decode(config[WORKER_JOB_KEY])
        bundle = {"CPU": job.cpus, "GPU": job.gpus}
        bundles = [{name: amount for name, amount in bundle.items() if amount}]
        if not job.excluded_nodes:
            return tune.PlacementGroupFactory(bundles)
        node_selector = {NODE_ID_LABEL: f"!in({','.join(job.excluded_nodes)})"}
        return tune.PlacementGroupFactory(bundles, bundle_label_selector=[node_selector])


def _run_folder_name(run: Run) -> str:
    return str(run.trial_id)


class SessionSearcher(Searcher):
    """Searcher of Tune that requests an attempt from the session when a slot is free."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self._key = key

    def suggest(self, trial_id: str) -> Any:
        """Return the encoded job of the next attempt; None to retry later, FINISHED if none will follow."""
        tune_session = _SESSIONS[self._key]
        with tune_session.store_failure() as session:
            attempt = session.next_attempt(trial_id, tune_session.slots())
            if isinstance(attempt, NoAttempt):
                return Searcher.FINISHED if attempt is NoAttempt.NEVER else None
            excluded_nodes = tune_session.nodes.excluded_nodes if tune_session.nodes is not None else ()
            return {WORKER_JOB_KEY: tune_session.orders.encode(attempt, excluded_nodes)}

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        """Do nothing, since the scheduler has already reported the end."""

    def save(self, checkpoint_path: str) -> None:
        """Create the file that Tune expects; the ledger contains the state."""
        Path(checkpoint_path).touch()

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing, since Tune's experiments are never restored."""


class SessionScheduler(FIFOScheduler):
    """Scheduler of Tune that passes reports to the session and decisions of the session to the actors."""

    def __init__(self, key: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._key = key

    def on_trial_add(self, tune_controller: Any, trial: Run) -> None:
        """Store the run, so that its start on an actor is detected."""
        _SESSIONS[self._key].runs[trial.trial_id] = trial

    def on_trial_result(self, tune_controller: Any, trial: Run, result: dict[str, Any]) -> str:
        """Record a report. A stop decision is sent to the actor, which ends the trial and reports the end."""
        tune_session = _SESSIONS[self._key]
        with tune_session.store_failure() as session:
            stop, is_written = session.report(trial.trial_id, result[REPLIES_KEY])
            if result[DEATH_KEY] is not None:
                session.record_death(trial.trial_id, *result[DEATH_KEY])
                return str(TrialScheduler.STOP)
            tune_session.allow_checkpoints(trial, allowed=is_written)
        if stop is not None:
            save = stop.kind is OutcomeKind.STOPPED and trial.trial_id not in tune_session.unwritten
            actor: Any = trial.temporary_state.ray_actor
            actor.end_trial.remote(stop.outcome, save)
        return str(TrialScheduler.STOP if result[HAS_ENDED_KEY] else TrialScheduler.CONTINUE)

    def on_trial_complete(self, tune_controller: Any, trial: Run, result: dict[str, Any]) -> None:
        """Remove the run."""
        del _SESSIONS[self._key].runs[trial.trial_id]

    def on_trial_error(self, tune_controller: Any, trial: Run) -> None:
        """Record that the actor died, or that its node cannot run trials."""
        tune_session = _SESSIONS[self._key]
        del tune_session.runs[trial.trial_id]
        error = read_error(trial)
        with tune_session.store_failure() as session:
            if UNSHARED_FOLDER_ERROR in error:
                session.reassign(trial.trial_id)
            else:
                session.record_death(trial.trial_id, shorten(error), classify_death(error))

    def choose_trial_to_run(self, tune_controller: Any) -> Run | None:
        """Update the session at every turn of Tune's loop; Tune itself starts pending runs."""
        tune_session = _SESSIONS[self._key]
        with tune_session.store_failure() as session:
            turn = session.update(tune_session.ids_in_state(Run.RUNNING))
            for key in turn.silent_keys:
                tune_session.kill(key)
            is_drained = turn.is_draining and len(tune_session.ids_in_state(Run.PENDING)) == len(
                tune_session.runs
            )
            if is_drained:
                session.end_unstarted()
        if is_drained:
            raise _SessionDrained
        return None


def classify_death(error: str) -> DeathCause:
    """Return why an actor died. An exception inside the actor would recur on another machine.

    Args:
        error: Complete text of `read_error`.
    """
    if LOW_MEMORY_TEXT in error:
        return DeathCause.MEMORY
    return DeathCause.TRIAL if TASK_ERROR_TEXT in error else DeathCause.OUTSIDE


def read_error(run: Run) -> str:
    """Return the error of a run on one line, without names that Ray assigns.

    Tune writes `error_file` before it calls the scheduler. Its `get_pickled_error` would look for a copy that
    Tune makes later.
    """
    try:
        text = Path(run.error_file or "").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return "Ray gave no reason"
    return redact(" ".join(_ERROR_NOISE.sub("", text).partition("Some common causes include")[0].split()))


def shorten(text: str) -> str:
    """Return a long text without its middle, since a traceback states its error at the end."""
    if len(text) <= MAX_REASON_LENGTH:
        return text
    half = MAX_REASON_LENGTH // 2
    return f"{text[:half]} ... {text[-half:]}"
