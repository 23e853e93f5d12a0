"""Runs a session on Ray: Tune places trials on actors; the recorder decides which trials run and stop.

The searcher asks the session for attempts, and the scheduler passes it reports. Tune cloudpickles both when
the Tuner is built and at snapshots, so they hold a key into `_SESSIONS`. Results and files of Tune are not
read.

Tune never retries a trial (max_failures=0): in Ray 2.60 a trial whose actor dies during a reset is never
started again, and Tune forgets the retries with the driver. A lost run has ended for Tune; if the recorder
continues the trial, that is a new run. There is no Callback, since any Callback makes Tune import MLflow.
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
from ray.exceptions import RayTaskError
from ray.tune.experiment import Trial as Run
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from orchestrator.execution.ray.node_check import NODE_ID
from orchestrator.execution.ray.nodes import Nodes
from orchestrator.execution.ray.trial_actor import DIED, OVER, REPLIES, UNFIT, WORKER_JOB, TrialActor
from orchestrator.execution.session import Hooks, NoAttempt
from orchestrator.execution.trial.jobs import JobEncoder, decode
from orchestrator.files.redact import redact
from orchestrator.trials import DeathCause, OutcomeKind

REASON_CHARACTERS = 500
LOW_MEMORY = "running low on memory"
"""Part of Ray's message for an actor that Ray killed because memory had run out."""
_NOISE = re.compile(r"^\s*((class_name|actor_id|namespace|pid|ip)\b.*|[\^~ ]+)$|\x1b\[[0-9;]*m", re.MULTILINE)
"""Lines with names that Ray gives to things, marks below lines of code, and colours."""


@dataclass(slots=True)
class _Link:
    """What Tune's hooks need of a session."""

    session: Hooks
    orders: JobEncoder
    slots: Callable[[], int]
    nodes: Nodes | None
    runs: dict[str, Run] = field(default_factory=dict)
    """Tune's runs that have not ended, by Tune's id."""
    unwritten: set[str] = field(default_factory=set)
    """Runs whose actors know that the ledger is behind."""
    failure: Exception | None = None
    """The first exception in a hook, since Tune wraps or loses exceptions."""

    @contextmanager
    def remembered(self) -> Iterator[Hooks]:
        """The session; keeps the first exception raised inside."""
        try:
            yield self.session
        except Exception as error:
            self.failure = self.failure or error
            raise

    def kill(self, key: str) -> None:
        """Kill an actor; Tune then reports its death."""
        actor: Any = self.runs[key].temporary_state.ray_actor
        ray.kill(actor)

    def in_state(self, state: str) -> list[str]:
        """Ids of the runs that Tune has in this state."""
        return [key for key, run in self.runs.items() if run.status == state]

    def tell_whether_written(self, run: Run, *, written: bool) -> None:
        """Tell the actor, before its next report, whether it may write a checkpoint."""
        if written != (run.trial_id in self.unwritten):
            return
        actor: Any = run.temporary_state.ray_actor
        actor.wait_for_ledger.remote(not written)
        (self.unwritten.discard if written else self.unwritten.add)(run.trial_id)


class _Drained(Exception):
    """The session drains, and the remaining runs have not begun, so Tune must not start them."""


_SESSIONS: dict[str, _Link] = {}


def run_session(
    session: Hooks, orders: JobEncoder, scratch: Path, slots: Callable[[], int], nodes: Nodes | None = None
) -> None:
    """Run on the connected Ray until the session is over.

    Args:
        session: Hands out attempts and takes reports.
        orders: What all attempts have in common.
        scratch: Folder for Tune's files.
        slots: Returns the number of trials that fit on the cluster now.
        nodes: Nodes of an existing cluster, some of which may get no trials.
    """
    key = uuid.uuid4().hex
    _SESSIONS[key] = link = _Link(session, orders, slots, nodes)
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
            search_alg=SessionSearcher(key),
            scheduler=SessionScheduler(key),
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
    """The trainable of Tune: a trial actor, and where one may be placed."""

    @classmethod
    def default_resource_request(cls, config: dict[str, Any]) -> tune.PlacementGroupFactory | None:
        """Return the resources of a trial, the same for all trials of a sweep."""
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


class SessionSearcher(Searcher):
    """Tune's searcher: asks the session for an attempt when a slot is free."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self._key = key

    def suggest(self, trial_id: str) -> Any:
        """Return the encoded job of the next attempt; None for later, FINISHED for never."""
        link = _SESSIONS[self._key]
        with link.remembered() as session:
            attempt = session.offer(trial_id, link.slots())
            if isinstance(attempt, NoAttempt):
                return Searcher.FINISHED if attempt is NoAttempt.NEVER else None
            kept_out = link.nodes.kept_out if link.nodes is not None else ()
            return {WORKER_JOB: link.orders.encode(attempt, kept_out)}

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        """Do nothing, since the scheduler has reported the end already."""

    def save(self, checkpoint_path: str) -> None:
        """Create the file that Tune expects; the ledger holds the state."""
        Path(checkpoint_path).touch()

    def restore(self, checkpoint_path: str) -> None:
        """Do nothing, since Tune's experiments are not restored."""


class SessionScheduler(FIFOScheduler):
    """Tune's scheduler: passes reports to the session and its decisions to the actors."""

    def __init__(self, key: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._key = key

    def on_trial_add(self, tune_controller: Any, trial: Run) -> None:
        """Remember the run, to see whether an actor takes it."""
        _SESSIONS[self._key].runs[trial.trial_id] = trial

    def on_trial_result(self, tune_controller: Any, trial: Run, result: dict[str, Any]) -> str:
        """Record a report. A stop goes to the actor, which ends the trial and reports the end."""
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
        """Forget the run."""
        del _SESSIONS[self._key].runs[trial.trial_id]

    def on_trial_error(self, tune_controller: Any, trial: Run) -> None:
        """Report that the actor died, or that its node can run no trials."""
        link = _SESSIONS[self._key]
        del link.runs[trial.trial_id]
        why = _reason(trial)
        with link.remembered() as session:
            if UNFIT in why:
                session.refused(trial.trial_id)
            else:
                session.lost(trial.trial_id, why, _cause(trial, why))

    def choose_trial_to_run(self, tune_controller: Any) -> Run | None:
        """Look after the session at every turn of Tune's loop, which starts pending runs by itself."""
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
    """Return why an actor died. An exception in the actor would be raised on another machine, too."""
    if LOW_MEMORY in reason:
        return DeathCause.MEMORY
    return DeathCause.TRIAL if isinstance(run.get_pickled_error(), RayTaskError) else DeathCause.OUTSIDE


def _reason(run: Run) -> str:
    """Return the error of a run on one line, without the middle if it is long."""
    if (error := run.get_pickled_error()) is None:
        return "Ray gave no reason"
    text = redact(" ".join(_NOISE.sub("", str(error)).partition("Some common causes include")[0].split()))
    if UNFIT in text:
        return UNFIT
    if len(text) <= REASON_CHARACTERS:
        return text
    half = REASON_CHARACTERS // 2
    return f"{text[:half]} ... {text[-half:]}"
