"""Train or re-evaluate one trial, from one report to the next."""

import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from trainables.checkpoint import load_weights, weights
from trainables.heads.sequence import SequenceModel
from trainables.metrics import DIGEST, TRAIN_FLOPS, Metric, metric_name
from trainables.protocol import Diverged, Job, Measurement
from trainables.training.accumulator import Accumulator
from trainables.training.config import TrainConfig, train_config
from trainables.training.evaluate import evaluate
from trainables.training.examples import record_example
from trainables.training.graphed import CudaEngine, Engine, GraphedPasses
from trainables.training.ranks import Ranks
from trainables.training.schedule import learning_rate
from trainables.training.selected_weights import (
    ScoredWeights,
    best_candidates,
    copy_tensors,
    mean_weights,
    temporary_weights,
)
from trainables.training.sources import VALID, Sources
from trainables.training.state import TrainingProgress, TrainingState, read_selected
from trainables.training.step import Learner, run_step
from trainables.training.tallies import EXAMPLES_MAX, tally_examples
from trainables.training.work import FlopsCalculator
from trainables.training.writing import measure_writing

LOG = logging.getLogger(__name__)

MIN_IMPROVEMENT = 1e-4
"""Least improvement of a validation score that counts (released code of Ray Chowdhury and Caragea)."""
EPOCH_SECONDS = "train/seconds_per_epoch"
"""Metric of tasks with finite training data; tasks that draw every batch have no epochs."""
metrics = (
    Metric(
        "lr",
        low=0.0,
        split="train",
        shown=(),
        given="is a setting, not a result; choose a metric that measures the model",
    ),
    Metric(
        "tokens_per_s",
        "max",
        unit="tokens/s",
        low=0.0,
        meaning="training speed",
        note="tokens_per_s depends on the load of the machine at that time, so differences between arms can "
        "have that cause alone.",
        split="train",
        shown=("table",),
    ),
    Metric(
        "seconds_per_epoch",
        "min",
        unit="s",
        low=0.0,
        meaning="training time of one pass over the training data, s",
        split="train",
        shown=("table",),
    ),
)
"""Metrics of the steps between the last two measurements; the speed shows whether halting saves time."""


class Training:
    """Built-in workload: a model that is trained on a task, measured, saved and restored.

    In phase `posthoc` no training happens: the weights selected by the training in `job.source` are measured
    once, with the settings of `job`. Test splits are opened after the last step only.

    Raises:
        ValueError: The settings cannot be built.
        CheckpointError: The source does not fit the settings.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._config = train_config(job.settings["train"])
        self._sources = self._open_sources(job, self._config)
        self._device = self._sources.device
        model = self._sources.model()
        learner = Learner(model, self._config, seed=job.seed)
        self._work: FlopsCalculator = self._sources.work()
        self._examples: tuple[dict[str, Any], ...] = ()
        identity = {"settings": job.settings, "seed": job.seed}
        self._state = TrainingState(
            learner, json.loads(json.dumps(identity, default=dict)), TrainingProgress()
        )
        if job.phase == "posthoc":
            self._load_source()
        elif self._config.ranks > 1:
            learner.ranks = Ranks(job, learner.model, self._config.ranks)
        elif self._config.graph is True:
            learner.graphs = GraphedPasses(learner, self._sources.filler(), self._engine())
            self._sources.train_device = torch.device("cpu")

    def _open_sources(self, job: Job, config: TrainConfig) -> Sources:
        """Return the model and batches of the job, on the training device."""
        return Sources(job, config, torch.device("cuda" if torch.cuda.is_available() else "cpu"))

    def _engine(self) -> Engine:
        """Return the engine that captures passes. Raises ValueError without a CUDA device."""
        if self._device.type != "cuda":
            raise ValueError("train.graph: true needs a CUDA device, got none: drop it, or train on a GPU")
        return CudaEngine(self._device)

    @property
    def model(self) -> torch.nn.Module:
        """Return the model with its present weights."""
        return self._state.learner.model

    @property
    def finished(self) -> bool:
        """Return whether the last measurement has been returned."""
        return self._state.progress.finished

    def advance(self) -> Measurement:
        """Train until the next report and measure; after the last step, evaluate the test splits too.

        Raises:
            Diverged: A loss or a gradient is not finite.
        """
        assert not self.finished, "a finished workload does not advance"
        started_at, progress = perf_counter(), self._state.progress
        metrics = self._evaluate_source() if self._job.phase == "posthoc" else self._train()
        progress.seconds += perf_counter() - started_at
        metrics["model/parameters"] = float(sum(p.numel() for p in self._state.learner.model.parameters()))
        return Measurement(progress.step, progress.seconds, metrics, self._examples, self._digests())

    def _digests(self) -> dict[str, str]:
        """Return the digests of all measured splits; empty in a search and before the end of a trial."""
        if not self.finished or self._job.phase == "search":
            return {}
        return {metric_name(split, DIGEST): text for split, text in self._sources.digests.items()}

    def save(self, folder: Path) -> None:
        """Write the complete state into the existing, empty `folder`."""
        self._state.save(folder)

    def restore(self, folder: Path) -> None:
        """Continue from the state that `save` wrote, bit for bit on a CPU. Raises CheckpointError."""
        self._state.restore(folder)

    def close(self) -> None:
        """Free the model and the data, including device memory, and end other ranks."""
        if self._state.learner.ranks is not None:
            self._state.learner.ranks.close()
        del self._state, self._sources
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def _train(self) -> dict[str, float]:
        config, progress = self._config, self._state.progress
        until = min(config.steps, (progress.step // config.report_every + 1) * config.report_every)
        metrics = self._steps(until)
        with temporary_weights(self._state.learner.model, self._state.learner.average):
            metrics |= self._measure(VALID)
            self._update_best(self._score(metrics))
        is_exhausted = config.patience is not None and progress.stale > config.patience
        progress.finished = progress.step == config.steps or is_exhausted
        if progress.finished and self._job.phase == "confirm":
            self._average_best()
            with temporary_weights(self._state.learner.model, self._state.selected):
                metrics |= self._measure_tests()
                self._examples = tuple(self._record_examples())
            metrics["model/selected_step"] = float(self._selected_step)
        return metrics

    def _steps(self, until: int) -> dict[str, float]:
        """Run optimiser steps up to number `until`; return their mean training metrics."""
        learner, progress = self._state.learner, self._state.progress
        accumulator = Accumulator(device=self._device, scaled=learner.scaler.is_enabled())
        started_at, examples = perf_counter(), 0
        for step in range(progress.step, until):
            batch = self._sources.train_batch(step)
            examples += len(batch.labels)
            accumulator.add(step, run_step(learner, batch, step))
        accumulator.flush()
        seconds = perf_counter() - started_at
        progress.step = until
        metrics = accumulator.metrics() | {
            "train/lr": learner.rate_scale * learning_rate(self._config, until - 1),
            "train/tokens_per_s": accumulator.tokens / seconds,
            TRAIN_FLOPS: until * self._work.step_flops,
        }
        epoch = self._sources.epoch
        return metrics if epoch is None else metrics | {EPOCH_SECONDS: seconds * epoch / examples}

    def _measure(self, split: str) -> dict[str, float]:
        """Return the metrics of `split` with the present weights."""
        learner, sources = self._state.learner, self._sources
        values = evaluate(learner, sources.batches(split), self._work.sample_flops)
        if isinstance(learner.model, SequenceModel):
            values |= measure_writing(learner, sources.batches_to_decode(split), sources.task)
        metrics = {f"{split}/{name}": value for name, value in values.items()}
        if not torch.isfinite(torch.tensor(list(metrics.values()))).all():
            raise Diverged(self._state.progress.step, values["loss"])
        return metrics

    def _measure_tests(self) -> dict[str, float]:
        metrics: dict[str, float] = {}
        for split in self._job.splits:
            metrics |= self._measure(split)
        return metrics

    def _record_examples(self) -> Iterator[dict[str, Any]]:
        """Yield records of single examples of the first test split, and tallies over many examples."""
        if not self._job.halting_examples:
            return
        split = self._job.splits[0] if self._job.splits else VALID
        try:
            for number, batch in self._sources.fixed_examples(split, self._job.halting_examples):
                if example := record_example(self._state.learner, batch, self._sources.task):
                    yield {"kind": "map", "split": split, "number": number, **example}
            tally_batches = {
                name: self._sources.fixed_batches(name, EXAMPLES_MAX) for name in self._job.splits or (VALID,)
            }
            yield from tally_examples(self._state.learner, tally_batches, self._sources.task)
        except Exception as error:
            # Models and tasks of other packages may differ in structure; that must not lose measurements.
            LOG.warning("halting of single examples could not be recorded: %r", error)

    def _score(self, metrics: dict[str, float]) -> float:
        """Return the score of a validation: higher is better."""
        by_loss = self._config.select_by == "loss"
        return -metrics[f"{VALID}/loss"] if by_loss else metrics[f"{VALID}/accuracy"]

    def _update_best(self, score: float) -> None:
        """Store a copy of the weights if `score` is the best so far, or among the best that are averaged."""
        progress = self._state.progress
        if self._config.average_best > 1 and self._job.phase == "confirm":
            self._keep_if_best(ScoredWeights(score, progress.step, weights(self._state.learner.model)))
        if progress.best_score is not None and score <= progress.best_score + MIN_IMPROVEMENT:
            progress.stale += 1
            self._halve_rate_if_stale()
            return
        progress.best_score, progress.best_step, progress.stale = score, progress.step, 0
        if self._keeps_single_best:
            self._state.best = copy_tensors(weights(self._state.learner.model))

    @property
    def _keeps_single_best(self) -> bool:
        config = self._config
        return config.select == "best" and config.average_best == 1 and self._job.phase == "confirm"

    def _keep_if_best(self, candidate: ScoredWeights) -> None:
        """Store a copy of the weights while they are among the best."""
        state = self._state
        state.candidates = best_candidates([*state.candidates, candidate], self._config.average_best)
        if candidate in state.candidates:
            state.candidates[-1] = replace(candidate, weights=copy_tensors(candidate.weights))

    def _average_best(self) -> None:
        """Replace the stored best weights by their mean, if there are several."""
        state = self._state
        if state.candidates:
            state.best, state.progress.best_step = mean_weights(state.candidates), state.candidates[-1].step
            state.candidates = []

    def _halve_rate_if_stale(self) -> None:
        progress, patience = self._state.progress, self._config.halve_after
        if patience is not None and progress.stale % (patience + 1) == 0:
            progress.halvings += 1
            self._state.learner.rate_scale = progress.rate_scale

    @property
    def _selected_step(self) -> int:
        progress = self._state.progress
        return progress.step if self._state.best is None else progress.best_step

    def _load_source(self) -> None:
        if self._job.source is None:
            raise ValueError("a posthoc job must name the checkpoint it reads, got source=None")
        selected = read_selected(self._job.source)
        load_weights(self._state.learner.model, selected.weights, self._job.source)
        # The measurement has the step at which the source training ended, but its own seconds.
        self._state.progress.step = selected.last_step
        self._state.progress.best_step = selected.step

    def _evaluate_source(self) -> dict[str, float]:
        metrics = self._measure(VALID) | self._measure_tests()
        self._state.progress.finished = True
        return metrics | {"model/selected_step": float(self._state.progress.best_step)}
