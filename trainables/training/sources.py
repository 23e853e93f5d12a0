"""Provide the model and batches of a trial; all randomness depends on its seed alone."""

import json
from collections.abc import Callable, Iterator
from functools import cached_property
from math import ceil

import numpy as np
import torch
from torch import nn

from trainables.assembly import build_model, model_config, ungraphed
from trainables.catalog import is_custom
from trainables.data.conformity import check_batch
from trainables.data.draws import permutation
from trainables.data.order import Bucketed, TokenBatches, batch_indices, evaluation_batches
from trainables.data.split import Split
from trainables.data.store import open_split
from trainables.field_effects import presentation_fields
from trainables.layers.attention.attend import plan_no_shapes
from trainables.protocol import Job
from trainables.settings import Settings
from trainables.streams import numpy_stream
from trainables.task_catalog import shape as task_shape
from trainables.task_catalog import splits, stream, task_config, task_name
from trainables.training.config import TrainConfig
from trainables.training.examples import fixed_sample
from trainables.training.graphed import Filler
from trainables.training.work import FlopsCalculator
from trainables.types import Batch

VALID = "valid"
"""Name in metrics of a task's split with role `valid`."""
VALID_SEED = 0
"""Seed of the choice of `valid_examples`; constant, so that all trials are compared on the same samples."""


def find_misfit(task: Settings, config: TrainConfig) -> str | None:
    """Return the reason why `config.order` is impossible for `task`; None if it is possible."""
    if config.order == "bucketed" and any(info.streamed for info in splits(task)):
        return (
            "order 'bucketed' needs a stored training split, got a task that draws every batch anew: "
            "choose order 'random'"
        )
    return None


class Sources:
    """Model and batches of one job. Each split is opened on first use."""

    def __init__(self, job: Job, config: TrainConfig, device: torch.device) -> None:
        self._job = job
        self._config = config
        self.device = device
        self.train_device = device
        """Device of training batches: the host if steps fill them up first (`training.graphed`)."""
        if device.type == "cuda":
            plan_no_shapes()
            torch.set_float32_matmul_precision("high" if config.precision == "tf32" else "highest")
        self.task = task_config(job.settings["task"])
        infos = {info.role: info for info in splits(self.task) if info.role != "test"}
        self._names: dict[str, str] = {role: info.name for role, info in infos.items()}
        self._train_info = infos["train"]
        self._streamed = self._train_info.streamed
        self.digests: dict[str, str] = {}
        """Digest of the samples of every split measured so far, by split."""
        if (reason := find_misfit(self.task, config)) is not None:
            raise ValueError(reason)

    def model(self) -> nn.Module:
        """Return the model with its seeded initial weights, in training mode."""
        return build_model(self._job.settings["model"], task_shape(self.task), self._job.seed, self.device)

    def work(self) -> FlopsCalculator:
        """Return the FLOPs calculator for training and evaluating the model."""
        return FlopsCalculator(model_config(self._job.settings["model"]), task_shape(self.task), self._config)

    def filler(self) -> Filler:
        """Return the filler for training batches. Raises ValueError if steps cannot be captured."""
        shape = task_shape(self.task)
        if (reason := ungraphed(model_config(self._job.settings["model"]), shape)) is not None:
            raise ValueError(f"train.graph {reason}")
        rows = ceil(self._config.batch_size / self._config.accumulate)
        return Filler.of(rows, shape.length_max, shape.pad_id)

    def train_batch(self, step: int) -> Batch:
        """Return the batch of optimiser step `step`, which depends on data, settings and seed alone."""
        if self._streamed:
            return self._draw(step).to(self.train_device)
        return self._train_split.batch(self._order(step)).to(self.train_device)

    @property
    def epoch(self) -> int | None:
        """Return the number of examples per epoch; None if every batch is newly drawn."""
        return None if self._streamed else len(self._train_split)

    def batches(self, split: str) -> Iterator[Batch]:
        """Return batches with all measured samples of `split`, each once."""
        return self._batches(*self._evaluated_examples(split))

    def batches_to_decode(self, split: str) -> Iterator[Batch]:
        """Return batches of the samples to decode: in validation at most `decode_examples`, else all."""
        examples, indices = self._evaluated_examples(split)
        if split == VALID:
            indices = _limit(indices, self._config.decode_examples)
        return self._batches(examples, indices, copies=self._config.beam_size)

    def fixed_batches(self, split: str, count: int) -> Iterator[Batch]:
        """Return batches with `count` examples of `split` (or all), the same examples in every trial."""
        examples = self._open_split(split)
        return self._batches(examples, fixed_sample(len(examples), count))

    def _batches(self, examples: Split, indices: np.ndarray, copies: int = 1) -> Iterator[Batch]:
        """Yield the examples at `indices` in batches; `copies` is the number of hypotheses for each input."""
        limits = (self._config.eval_batch_size, self._config.eval_tokens)
        size, tokens = (max(1, limit // copies) for limit in limits)
        for part in evaluation_batches(examples.lengths[indices], size, tokens):
            yield examples.batch(indices[part]).to(self.device)

    def fixed_examples(self, split: str, count: int) -> Iterator[tuple[int, Batch]]:
        """Yield index and batch of single examples of `split`: `count` ones, the same in every trial."""
        examples = self._open_split(split)
        for number in fixed_sample(len(examples), count).tolist():
            yield number, examples.batch(np.array([number])).to(self.device)

    @cached_property
    def _train_split(self) -> Split:
        return self._open_split("train")

    @cached_property
    def _order(self) -> Callable[[int], np.ndarray]:
        size, seed = self._config.batch_size, self._job.seed
        if self._config.batch_tokens is not None:
            return TokenBatches(self._train_split.sizes, self._config.batch_tokens, seed).batch_indices
        if self._config.order == "bucketed":
            return Bucketed(self._train_split.lengths, size, seed).batch_indices
        examples = len(self._train_split)  # not `self`: a reference cycle would delay freeing the memory
        return lambda step: batch_indices(examples, size, seed, step)

    def _draw(self, step: int) -> Batch:
        """Return a streamed batch. Raises ValueError if a custom task violates its declarations."""
        batch = stream(self.task, self._config.batch_size, self._job.seed, step)
        if is_custom("tasks", task_name(self.task)):
            check_batch(batch, task_shape(self.task), self._train_info)
        return batch

    def _open_split(self, split: str) -> Split:
        return open_split(self.task, self._names.get(split, split), self._job.data_dir)

    def _evaluated_examples(self, split: str) -> tuple[Split, np.ndarray]:
        """Return the examples of `split`, and the indices of the measured ones."""
        examples = self._open_split(split)
        all_indices = np.arange(len(examples))
        indices = _limit(all_indices, self._config.valid_examples) if split == VALID else all_indices
        self.digests[split] = self._digest(examples, indices)
        return examples, indices

    def _digest(self, examples: Split, indices: np.ndarray) -> str:
        """Return a digest of the measured samples: content, number chosen, and form.

        Samples in another form than the default have another content. The form is therefore appended after a
        space: digests with different forms say nothing about equality.
        """
        share_label = "" if len(indices) == len(examples) else f"/{len(indices)}"
        fields = type(self.task).model_fields
        form = {
            name: value
            for name in sorted(presentation_fields(self.task))
            if (value := getattr(self.task, name)) != fields[name].default
        }
        return f"{examples.content_hash}{share_label}" + (f" {json.dumps(form)}" if form else "")


def _limit(indices: np.ndarray, limit: int | None) -> np.ndarray:
    """Return at most `limit` (None: all) of `indices`, the same ones in every trial."""
    if limit is None or limit >= len(indices):
        return indices
    return np.sort(indices[permutation(numpy_stream(VALID_SEED, VALID), len(indices))[:limit]])
