"""Runs a sweep on Ray: Tune places trials on workers, the recorder says which and when they stop.

Our searcher asks, our scheduler hears and tells. Tune cloudpickles both when the Tuner is built and at
snapshots, so they hold a key into `_SESSIONS` and nothing alive. Tune's results are not read, its files are
thrown away.

Tune could retry lost trials (max_failures), but in Ray 2.60 one whose worker dies while it is being reset is
never started again, and Tune forgets the retries with the driver. So a lost run has ended for Tune; the
recorder decides whether the trial goes on, and then that is a new run. There is no Callback: what one could
hear the scheduler hears too, and any Callback makes Tune import MLflow.
"""

import re
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.tune.experiment import Trial as Run
from ray.tune.schedulers import FIFOScheduler, TrialScheduler
from ray.tune.search import Searcher

from orchestrator.conductor.recorder import Recorder
from orchestrator.drivers.jobs import Orders
from orchestrator.drivers.ray_cluster import cluster, slot_counter
from orchestrator.drivers.ray_trainable import REPLIES, TOLD, TrialActor
from orchestrator.drivers.session import Offer, Session
from orchestrator.drivers.silence import silence_limit
from orchestrator.plan.types import Resources
from orchestrator.trials import OutcomeKind

REASON_CHARACTERS = 500
_RAYS_NAMES = re.compile(r"(class_name|actor_id|namespace|pid|ip)\b")


@dataclass(frozen=True, slots=True)
class _Link:
    """What Tune's hooks have to do with a session."""

    session: Session
    orders: Orders
    runs: dict[str, Run] = field(default_factory=dict)
    """Tune's runs that have not ended, by Tune's id."""

    def end_silent(self) -> None:
        """Kill the workers that must have been heard of; Tune then tells that they died."""
        for run in [each for each in self.runs.values() if each.status == Run.RUNNING]:
            self.session.began(run.trial_id)
        for key in self.session.silent():
            actor: Any = self.runs[key].temporary_state.ray_actor
            ray.kill(actor)

    def collect_refused(self) -> None:
        """Refusing to be reset is the one end of a run that Tune tells nobody."""
        for run in [each for each in self.runs.values() if each.status == Run.ERROR]:
            del self.runs[run.trial_id]
            self.session.refused(run.trial_id)


class _Drained(Exception):
    """The session drains, and no worker has begun what is left: Tune is not to start it any more."""


_SESSIONS: dict[str, _Link] = {}


def run_ray(
    recorder: Recorder,
    workload: str,
    *,
    resources: Resources,
    data_dir: Path,
    address: str | None = None,
    num_cpus: int | None = None,
    on_change: Callable[[], None] | None = None,
    stop: threading.Event | None = None,
    check: Callable[[], None] | None = None,
) -> None:
    """Run until the sweep is finished or drained.

    Once `stop` is set, running trials are saved at their next report and told stopped. `on_change` is called
    after everything that is recorded; `check` often, and what it raises ends the run at once, as does a
    KeyboardInterrupt. To be called inside `ray_environment`.

    Raises InputError if there is no such cluster, or if a trial fits on none of its nodes.
    """
    orders = Orders(workload, resources.checkpoint_seconds, resources.cpus, resources.gpus, data_dir)
    with cluster(address, num_cpus) as scratch:
        session = Session(
            recorder, slot_counter(resources, elastic=address is not None), stop or threading.Event()
        )
        session.changed = on_change or session.changed
        session.check = check or session.check
        session.silence_s = silence_limit(resources)
        run_session(session, orders, scratch)


def run_session(session: Session, orders: Orders, scratch: Path) -> None:
    """Run on the Ray that is connected; Tune's own files go below `scratch`."""
    key = uuid.uuid4().hex
    _SESSIONS[key] = _Link(session, orders)
    try:
        _tuner(key, scratch).fit()
    except _Drained:
        pass
    except Exception as error:
        raise session.failure or error from error
    finally:
        del _SESSIONS[key]


def _tuner(key: str, scratch: Path) -> tune.Tuner:
    return tune.Tuner(
        TrialActor,
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
        with link.session.remembered():
            # Here too: with nothing else to do Tune waits for a suggestion, and for nothing else.
            link.collect_refused()
            attempt = link.session.offer(trial_id)
            if isinstance(attempt, Offer):
                return Searcher.FINISHED if attempt is Offer.NEVER else None
            return {TOLD: link.orders.encode(attempt)}

    def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
        """The scheduler has told already."""

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
        session = _SESSIONS[self._key].session
        with session.remembered():
            stop = session.heard(trial.trial_id, result[REPLIES])
        if stop is not None:
            save = stop.kind is OutcomeKind.STOPPED
            actor: Any = trial.temporary_state.ray_actor
            actor.let_go.remote(stop.outcome, save)
        ended = trial.trial_id not in session.running
        return str(TrialScheduler.STOP if ended else TrialScheduler.CONTINUE)

    def on_trial_complete(self, tune_controller: Any, trial: Run, result: dict[str, Any]) -> None:
        """The run is over for Tune too."""
        del _SESSIONS[self._key].runs[trial.trial_id]

    def on_trial_error(self, tune_controller: Any, trial: Run) -> None:
        """The worker died."""
        link = _SESSIONS[self._key]
        del link.runs[trial.trial_id]
        with link.session.remembered():
            link.session.lost(trial.trial_id, _reason(trial))

    def choose_trial_to_run(self, tune_controller: Any) -> Run | None:
        """Called at every turn of Tune's loop, which starts pending runs without our help."""
        link = _SESSIONS[self._key]
        with link.session.remembered():
            link.session.tick()
            link.collect_refused()
            link.end_silent()
            begun = any(each.status != Run.PENDING for each in link.runs.values())
            drained = link.session.recorder.draining and not begun
            if drained:
                link.session.give_up()
        if drained:
            raise _Drained
        return None


def _reason(run: Run) -> str:
    """What Tune wrote of the failure, on one line, without the names that Ray gives to things."""
    if not run.error_file or not Path(run.error_file).is_file():
        return "Ray gave no reason"
    lines = [line.strip() for line in Path(run.error_file).read_text().splitlines()[1:]]
    told = " ".join(line for line in lines if line and not _RAYS_NAMES.match(line))
    told = told.partition(" Some common causes include")[0]
    return told if len(told) <= REASON_CHARACTERS else f"{told[:REASON_CHARACTERS]} ..."
