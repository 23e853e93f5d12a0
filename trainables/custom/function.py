"""Run a plain function as a trainable: `train(settings, trial)`, which needs no import of haltsweep.

    def train(settings, trial):
        model = build(settings, seed=trial.seed_of("weights"))
        state = trial.folder / "state.pt"
        if state.exists():
            ...                                    # continue from the stored state
        for step in ...:
            ...
            torch.save(..., state)                 # to allow resuming; before the report
            trial.report(step, {"valid/accuracy": accuracy})

The function runs in a greenlet. It is suspended inside `report` while the trial is recorded, saved or
stopped. The re-evaluation of a confirmed checkpoint under other settings is a plain function too.
"""

import copy
import json
import mmap
import operator
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any, NoReturn

import numpy as np
from greenlet import GreenletExit, getcurrent, greenlet

from trainables.custom.extensions import error_remedy
from trainables.custom.generator_state import GeneratorFiles, process_and_thread
from trainables.custom.open_files import flush_open_files
from trainables.process_identity import process_label
from trainables.protocol import TRIALS, Infeasible, Job, Measurement
from trainables.seeds import derive

Train = Callable[[Mapping[str, Any], "FunctionTrial"], object]
FILES_FOLDER, REPORT_FILE, GENERATORS_FILE = "files", "reported.json", "generators.json"
"""Names in a checkpoint: files of the function, its last report, states of global generators."""
LOST_STEP_BYTES = 64
"""Size of the memory that forked processes share for the step of a lost report."""
Evaluate = Callable[[Mapping[str, Any], Path], Mapping[str, float]]


class FunctionTrial:
    """The second argument of a training function: describes the trial and records its metrics."""

    def __init__(
        self, job: Job, folder: Path, record_report: Callable[[int, Mapping[str, float]], None]
    ) -> None:
        self.seed: int = job.seed
        """Seed of the trial; paired trials of different arms have the same seed."""
        self.phase: str = job.phase
        """Phase of the trial: `search` or `confirm`."""
        self.splits: tuple[str, ...] = job.splits
        """Test splits to measure after the last step; empty during a search."""
        self.data: Path = job.data_dir
        """Folder for datasets, shared by all trials of a machine; it may not exist yet."""
        self.folder: Path = folder
        """Files in this folder at a report are saved, and restored when the trial is resumed."""
        self._record_report = record_report

    @property
    def device(self) -> str:
        """Return `cuda` if PyTorch can use a GPU, else `cpu`."""
        import torch

        return "cuda" if torch.cuda.is_available() else "cpu"

    def seed_of(self, *name: str | int) -> int:
        """Return a seed from 0 to 2**32 - 1 for the random stream `name`.

        The seed is the same in all arms, whatever other random numbers an arm draws.

        Args:
            name: Texts and numbers that name the stream, e.g. `"epoch", 3`.
        """
        return derive(self.seed, *name) % 2**32

    def generator(self, *name: str | int) -> np.random.Generator:
        """Return a new NumPy generator for the random stream `name`.

        Args:
            name: Texts and numbers that name the stream, as in `seed_of`.
        """
        return np.random.Generator(np.random.PCG64(derive(self.seed, *name)))

    def infeasible(self, reason: str) -> NoReturn:
        """End this trial because its settings cannot be trained, e.g. a model that does not fit.

        A search draws another trial in its place; a confirmation counts it as failed.

        Args:
            reason: What is wrong with the settings, for messages.

        Raises:
            Infeasible: Always.
        """
        raise Infeasible(str(reason).strip() or "no reason was given")

    def report(self, step: int, metrics: Mapping[str, float] | None = None) -> None:
        """Record the metrics measured after `step` steps, by name, e.g. `valid/accuracy` or `eval_loss`.

        The part of a name before its first slash is the split; a name without a slash has none. If the
        sweep stops the trial early, this call raises GreenletExit instead of returning.

        Args:
            step: Number of steps, e.g. of epochs; it increases from report to report.
            metrics: Numbers by name. Texts describe the trial. The text `<split>/digest` identifies the
                examples of a split: the report withholds verdicts between arms whose digests differ.

        Raises:
            TypeError: The step is missing, or the arguments are swapped.
            RuntimeError: Another thread or process than that of the training function calls it.
        """
        if not isinstance(metrics, Mapping):
            raise TypeError(_report_error(step, metrics))
        self._record_report(step, metrics)


def _format_step(step: object) -> str:
    return str(step)[: LOST_STEP_BYTES // 4]


def _misplaced_report_error(step: str) -> RuntimeError:
    return RuntimeError(
        "trial.report must be called in the process and the thread that the training function was called in, "
        f"but step {step} was reported in another one; pass the measurements to the first one"
    )


def _report_error(step: object, metrics: object) -> str:
    """Return what is wrong with the arguments of a report."""
    call = "trial.report(step, metrics)"
    if isinstance(step, Mapping):
        if metrics is None:
            return f"{call} requires the step before the metrics, got only the metrics {step!r}"
        return f"{call} takes the number of the step first, got the metrics first: swap the arguments"
    return (
        f"{call} takes a mapping from name to number as metrics, got {metrics!r} after {step!r}; Optuna's "
        'trial.report(value, step) is written trial.report(step, {"valid/loss": value}) here'
    )


class FunctionWorkload:
    """Runs `train(settings, trial)` from one report to the next.

    A resumed function without saved files runs again from the start. Its reports up to the last step before
    the interruption are skipped, so that each measurement is recorded once. When a resumed function reads a
    saved file, the global generators of Python, NumPy and PyTorch return to their states at the time of
    writing.
    """

    def __init__(self, train: Train, job: Job) -> None:
        self.finished = False
        """Whether the function has returned."""
        self._folder, self._is_temporary = _folder_for(job), job.folder is None
        self._started_at = perf_counter()
        self._last_report: Measurement | None = None
        self._reported_until: int | None = None
        """Reports up to this step were made before the trial was resumed."""
        self._generators = GeneratorFiles(self._folder)
        self._caller = (0, 0)
        """Process and thread of the function; a report from any other one cannot suspend it."""
        self._lost_step = mmap.mmap(-1, LOST_STEP_BYTES)
        """Step of a report in another thread or forked process, where its error may remain unnoticed."""
        self._how_to_report = getattr(train, "how_to_report", "call trial.report(step, metrics)")
        trial = FunctionTrial(job, self._folder, self._handle_report)
        # The function receives a copy, so that changes to it leave the settings of the trial unchanged.
        self._running = greenlet(lambda: _run_function(train, copy.deepcopy(job.settings), trial))

    def advance(self) -> Measurement | None:
        """Run the function until its next report and return the report; None if the function has ended.

        Raises the errors of the function.

        Raises:
            ValueError: The function returned without any report.
        """
        # Reports, return values and exceptions of the function are passed to the parent greenlet.
        self._running.parent = getcurrent()
        self._caller = self._generators.caller = process_and_thread()
        self._started_at = perf_counter()
        reported = self._running.switch()
        if not self._running.dead:
            self._last_report = reported
        self._require_no_lost_step()
        if not self._running.dead:
            return self._last_report
        self.finished = True
        flush_open_files()
        if self._last_report is None:
            returned = "" if reported is None else f" but with a value of type {type(reported).__name__}"
            raise ValueError(
                f"a training function must report at least once, and it returned without a report{returned}: "
                f"{self._how_to_report}"
            )
        return None

    def _require_no_lost_step(self) -> None:
        """Raise the error of a report elsewhere, unless the function has reported the same step itself.

        A forked process that returns from the function continues with the reports of its parent.
        """
        lost_step = self._lost_step[:LOST_STEP_BYTES].rstrip(b"\0").decode()
        if lost_step and (self._last_report is None or lost_step != _format_step(self._last_report.step)):
            raise _misplaced_report_error(lost_step)
        self._lost_step[:] = bytes(LOST_STEP_BYTES)

    def _handle_report(self, step: int, metrics: Mapping[str, float]) -> None:
        if process_and_thread() != self._caller:
            shown_step = _format_step(step)
            self._lost_step[:] = shown_step.encode().ljust(LOST_STEP_BYTES, b"\0")
            raise _misplaced_report_error(shown_step)
        self._generators.reported()
        if self._reported_until is not None and is_at_most(step, self._reported_until):
            return
        seconds = 0.0 if self._last_report is None else self._last_report.seconds
        measurement = Measurement(step, seconds + perf_counter() - self._started_at, metrics)
        assert self._running.parent is not None, "a running function must have a parent greenlet"
        self._running.parent.switch(measurement)

    def save(self, folder: Path) -> None:
        """Write the files of the function and its last step into the empty `folder`."""
        assert self._last_report is not None, "a trial must report before it is saved"
        _copy(self._folder, folder / FILES_FOLDER)
        self._generators.save(folder / GENERATORS_FILE)
        last_report = {"step": int(self._last_report.step), "seconds": self._last_report.seconds}
        (folder / REPORT_FILE).write_text(json.dumps(last_report), encoding="utf-8")

    def restore(self, folder: Path) -> None:
        """Restore the files of the function before it starts."""
        last_report = json.loads((folder / REPORT_FILE).read_text(encoding="utf-8"))
        _copy(folder / FILES_FOLDER, self._folder)
        self._generators.restore(folder / GENERATORS_FILE)
        self._reported_until = last_report["step"]
        self._last_report = Measurement(last_report["step"], last_report["seconds"], {})

    def close(self) -> None:
        """End the function at its current point, and delete its temporary folder."""
        try:
            if not self._running.dead:
                self._running.throw(GreenletExit)
        finally:
            self._generators.close()
            if self._is_temporary:
                shutil.rmtree(self._folder, ignore_errors=True)


_RUNNING_TRIALS: list["FunctionTrial"] = []


def running_trial() -> FunctionTrial | None:
    """Return the trial whose function this process runs, or None."""
    return _RUNNING_TRIALS[-1] if _RUNNING_TRIALS else None


def _run_function(train: Train, settings: Mapping[str, Any], trial: FunctionTrial) -> object:
    """Return the result of `train`; a script may also end by `sys.exit()` or `sys.exit(0)`."""
    _RUNNING_TRIALS.append(trial)
    try:
        return train(settings, trial)
    except BaseException as error:
        if isinstance(error, SystemExit) and error.code in (None, 0):
            return None
        if remedy := error_remedy(error):
            error.add_note(remedy)
        raise
    finally:
        _RUNNING_TRIALS.remove(trial)


def _folder_for(job: Job) -> Path:
    """Return an empty folder for the files of the function."""
    if job.folder is None:
        return Path(tempfile.mkdtemp(prefix=f"{TRIALS}{process_label()}-"))
    shutil.rmtree(job.folder, ignore_errors=True)  # left by a checkpoint that could not be restored
    job.folder.mkdir(parents=True)
    return job.folder


def is_at_most(step: Any, last_step: int) -> bool:
    """Return whether `step` is an integer up to `last_step`. The worker checks all other steps."""
    try:
        return operator.index(step) <= last_step
    except TypeError:
        return False


def _copy(source: Path, target: Path) -> None:
    """Copy the contents of the folder `source`; links to folders, perhaps of data, stay links."""
    links: list[Path] = []

    def find_folder_links(folder: str, names: list[str]) -> list[str]:
        folders = [path for path in map(Path(folder).joinpath, names) if path.is_symlink() and path.is_dir()]
        links.extend(folders)
        return [path.name for path in folders]

    shutil.copytree(source, target, ignore=find_folder_links, dirs_exist_ok=True)
    for link in links:
        (target / link.relative_to(source)).symlink_to(link.readlink())


class Evaluation:
    """Calls `evaluate(settings, folder)` once, on a copy of the files of the confirmed trial."""

    def __init__(self, evaluate: Evaluate, job: Job) -> None:
        if job.source is None:
            raise ValueError("a posthoc job must name the checkpoint it reads, got source=None")
        self.finished = False
        """Whether the evaluation has returned its measurement."""
        self._evaluate, self._settings, self._source = evaluate, job.settings, job.source
        self._folder, self._is_temporary = _folder_for(job), job.folder is None

    def advance(self) -> Measurement:
        """Evaluate, and return the metrics as one measurement at the last step of the training.

        Raises:
            ValueError: The function returns no metrics.
        """
        started_at = perf_counter()
        reported = self._source / REPORT_FILE
        is_of_function = reported.is_file()
        step = json.loads(reported.read_text(encoding="utf-8"))["step"] if is_of_function else 0
        # Copy the checkpoint, because it must still match its digest for later re-evaluations.
        _copy(self._source / FILES_FOLDER if is_of_function else self._source, self._folder)
        metrics = self._evaluate(self._settings, self._folder)
        self.finished = True
        if isinstance(metrics, Mapping) and not metrics:  # the worker reports any other error
            raise ValueError("evaluate(settings, folder) must return at least one metric, got none")
        return Measurement(step, perf_counter() - started_at, metrics)

    def save(self, folder: Path) -> None:
        """Do nothing: an evaluation has no state."""

    def restore(self, folder: Path) -> None:
        """Do nothing: an interrupted evaluation runs again."""

    def close(self) -> None:
        """Delete the temporary copy of the checkpoint."""
        if self._is_temporary:
            shutil.rmtree(self._folder, ignore_errors=True)
