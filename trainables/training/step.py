"""Run one optimiser step, for the training loop, the planner's ablation checks and cost estimates."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from trainables.assembly import batch_norm, batch_statistics
from trainables.checkpoint import weights
from trainables.layers.batch_parts import BatchPart, declare_part
from trainables.layers.dropout import set_dropout_context
from trainables.layers.global_generator import evaluation_stream
from trainables.layers.recomputing import can_recompute, recompute
from trainables.threads import cpu_threads
from trainables.training.config import ON_CUDA, TrainConfig
from trainables.training.optimizers import make_optimizer
from trainables.training.ranks import Ranks
from trainables.training.schedule import beta1, learning_rate
from trainables.training.selected_weights import copy_tensors, update_average
from trainables.types import NOT_ASKED, Batch, Output

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True)
class StepResult:
    """Measurements of one step, made before its weight update: detached scalars on the model's device."""

    loss: Float[Tensor, ""]
    """Mean main loss, without the ponder cost."""
    ponder: Float[Tensor, ""]
    """Mean ponder cost in layers, unweighted."""
    gradient_norm: Float[Tensor, ""]
    """Euclidean norm of the full gradient before clipping."""
    hits: Float[Tensor, ""]
    counts: Float[Tensor, ""]
    tokens: Int[Tensor, ""]
    """Number of real tokens in the batch."""

    def row(self) -> Float[Tensor, " 6"]:
        """Return all values as one float64 tensor, in field order, for a single transfer to the host."""
        values = (self.loss, self.ponder, self.gradient_norm, self.hits, self.counts, self.tokens)
        return torch.stack([value.double() for value in values])


class CapturedPasses(Protocol):
    """Interface of captured forward and backward passes: `training.graphed`."""

    def backward(self, batch: Batch, step: int) -> tuple[Tensor, ...]:
        """Return the same sums and store the same gradients as `compute_gradients`."""
        raise NotImplementedError


class Learner:
    """A model with its optimiser: the state that a step changes.

    Raises:
        ValueError: `precision` needs a CUDA device and the model has none, or `find_misfit` returns a reason.
    """

    def __init__(self, model: nn.Module, config: TrainConfig, *, seed: int) -> None:
        self.model = model
        self.config = config
        self.seed = seed
        self.device = next(model.parameters()).device
        if config.precision in ON_CUDA and self.device.type != "cuda":
            raise ValueError(
                f"precision {config.precision!r} needs a CUDA device, got a model on {self.device.type!r}: "
                "choose 'fp32' or 'bf16'"
            )
        if (reason := find_misfit(model, config)) is not None:
            raise ValueError(reason)
        if config.checkpoint_activations:
            recompute(model)
        self.ranks: Ranks | None = None
        """The other processes that share the batches; None without them."""
        self.graphs: CapturedPasses | None = None
        """Captured forward and backward passes; None if steps do not replay graphs."""
        self.rate_scale = 1.0
        """Factor of the scheduled learning rate, lowered when validations stop improving."""
        self.average = None if config.ema is None else copy_tensors(weights(model))
        """Moving average of the weights, evaluated in their place; None without an average."""
        self.optimizer = make_optimizer(model, config)
        self.scaler = torch.amp.GradScaler("cuda", enabled=config.precision == "fp16")

    def autocast(self, *, caches: bool = True) -> AbstractContextManager[None]:
        """Return a context in which forward passes run in the configured precision.

        `caches` states whether each weight is cast once for all its uses.
        """
        dtype = _AUTOCAST.get(self.config.precision)
        return torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None, cache_enabled=caches)


@contextmanager
def evaluating(learner: Learner) -> Iterator[None]:
    """Evaluate the model in the block, with the configured precision and threads and seeded randomness."""
    learner.model.eval()
    random_stream = evaluation_stream(learner.model, learner.seed)
    with cpu_threads(learner.config.threads), learner.autocast(), random_stream:
        yield
    learner.model.train()


def find_misfit(model: nn.Module, config: TrainConfig) -> str | None:
    """Return why steps of `config` cannot be taken with `model`, as `must ..., got ...`; None if they can."""
    if config.checkpoint_activations and not can_recompute(model):
        return (
            "checkpoint_activations must be false for a model without layers that can be run again in the "
            "backward pass, got true: drop it, or derive layers from "
            "trainables.layers.recomputing.RecomputableLayer"
        )
    if config.graph is True and (norm := batch_norm(model)) is not None:
        return (
            f"graph must be false for a model with batch normalisation, got {norm}: drop "
            "train.graph, or normalise each sample separately"
        )
    return batch_statistics(model) if config.parts > 1 else None


def objective(output: Output, config: TrainConfig) -> Float[Tensor, ""]:
    """Return the training loss: the mean main loss plus the weighted means of ponder cost and auxiliary cost.

    A share `label_smoothing` of the main loss treats all classes equally. Source: Ray Chowdhury and Caragea,
    Investigating Recurrent Transformers with Dynamic Halt, Eq. 8. The weight and the mean over the batch
    follow the released code and are applied in training only.
    """
    main, smoothing = output.loss.mean(), config.label_smoothing
    if smoothing:
        assert output.uniform is not None, "label smoothing needs a head that returns the uniform loss"
        main = (1 - smoothing) * main + smoothing * output.uniform.mean()
    total = main + config.ponder_weight * output.encoded.ponder.mean()
    weight, auxiliary = config.auxiliary_weight, output.encoded.auxiliary
    return total if auxiliary is None else total + weight * auxiliary.mean()


def run_step(learner: Learner, batch: Batch, step: int) -> StepResult:
    """Run forward, backward, clip and update on `batch` as optimiser step number `step`, counted from 0.

    The rate, beta1 and dropout depend on `step` alone, so a step can be repeated anywhere. The step checks
    nothing and does not wait for the device; the caller must check that the result is finite. The clipped
    gradients remain on the parameters until the next step.
    """
    with cpu_threads(learner.config.threads):
        loss, ponder, hits, counts = compute_gradients(learner, batch, step)
        norm = _update(learner, step)
        if learner.average is not None and learner.config.ema is not None:
            update_average(learner.average, learner.model, learner.config.ema)
    # Graphed passes take batches on the host.
    tokens = batch.mask.sum().to(learner.device, non_blocking=True)
    return StepResult(loss, ponder, norm, hits, counts, tokens)


def compute_gradients(learner: Learner, batch: Batch, step: int) -> tuple[Tensor, ...]:
    """Store gradients of the objective, scaled in fp16, on the parameters, and return sums over the batch.

    The batch runs in `parts` parts, or one part per row if it has fewer rows. The means of each part are
    weighted by its share of the rows.

    Returns:
        Mean loss, mean ponder cost, number of correct predictions, and number of predictions of the batch.
    """
    learner.optimizer.zero_grad(set_to_none=True)
    if learner.ranks is not None:
        learner.ranks.begin(step)
        return learner.ranks.sum_on_rank0(_share_sums(learner, batch, step, 0)).unbind()
    if learner.graphs is not None:
        return learner.graphs.backward(batch, step)
    parts = min(learner.config.parts, len(batch.labels))
    if parts == 1:
        return _backward_of_part(learner, batch, step)
    return tuple(_backward_of_parts(learner, batch, step, range(parts)).unbind())


def share_of_step(learner: Learner, batch: Batch, step: int, rank: int) -> Float[Tensor, " 4"]:
    """Run backward passes on the parts of a batch that belong to rank number `rank`; return their sums."""
    with cpu_threads(learner.config.threads):
        learner.optimizer.zero_grad(set_to_none=True)
        return _share_sums(learner, batch, step, rank)


def _share_sums(learner: Learner, batch: Batch, step: int, rank: int) -> Float[Tensor, " 4"]:
    count = learner.config.accumulate
    return _backward_of_parts(learner, batch, step, range(rank * count, (rank + 1) * count))


def _backward_of_parts(learner: Learner, batch: Batch, step: int, numbers: range) -> Float[Tensor, " 4"]:
    """Run backward passes on the parts with these `numbers`; return their sums (zeros if no part exists)."""
    num_rows = len(batch.labels)
    totals = torch.zeros(4, dtype=torch.float64, device=learner.device)
    for number, part in enumerate(split_batch(batch, min(learner.config.parts, num_rows))):
        if number in numbers:
            with declare_part(part):
                rows = batch.rows(part.first_row, part.first_row + part.rows)
                sums = _backward_of_part(learner, rows, step, number, part.rows / num_rows)
            totals += torch.stack([value.double() for value in sums])
    return totals


def split_batch(batch: Batch, parts: int) -> Iterator[BatchPart]:
    """Yield parts of the batch that differ by at most one row, the larger ones first."""
    num_rows, first_row = len(batch.labels), 0
    is_target = batch.labels != NOT_ASKED
    for number in range(parts):
        rows = num_rows // parts + (number < num_rows % parts)
        yield BatchPart(
            first_row, rows, num_rows, first_row if is_target.dim() == 1 else is_target[:first_row].sum()
        )
        first_row += rows


def _backward_of_part(
    learner: Learner, rows: Batch, step: int, number: int = 0, share: float = 1.0
) -> tuple[Tensor, ...]:
    """Run a backward pass on part `number` of a batch; `share`, its share of the rows, weights its means."""
    set_dropout_context(learner.model, learner.seed, step, number)
    with learner.autocast():
        output: Output = learner.model(rows)
        total, sums = weighted_objective(output, learner, share)
    total.backward()  # type: ignore[no-untyped-call]
    return sums


def weighted_objective(output: Output, learner: Learner, share: float) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the loss to differentiate, scaled in fp16, and the sums of `compute_gradients`.

    Means of a part of a batch are weighted by its `share` of the rows.
    """
    total = objective(output, learner.config)
    loss, ponder = output.loss.detach().mean(), output.encoded.ponder.detach().mean()
    if share != 1:
        loss, ponder, total = loss * share, ponder * share, total * share
    sums = loss, ponder, output.hits.detach().sum(), output.counts.detach().sum()
    return learner.scaler.scale(total), sums


def _update(learner: Learner, step: int) -> Float[Tensor, ""]:
    """Clip the gradient, update the weights and return the norm of the gradient before clipping."""
    config, optimizer, scaler = learner.config, learner.optimizer, learner.scaler
    for group in optimizer.param_groups:
        group["lr"] = learner.rate_scale * learning_rate(config, step)
        group["betas"] = (beta1(config, step), config.betas[1])
    scaler.unscale_(optimizer)
    norm = _clip(learner.model, config.clip)
    scaler.step(optimizer)
    scaler.update()
    return norm


def _clip(model: nn.Module, clip: float | None) -> Float[Tensor, ""]:
    """Scale the gradient down to norm `clip` if it is longer, and return its original norm."""
    parameters = list(model.parameters())
    if clip is not None:
        return nn.utils.clip_grad_norm_(parameters, clip)
    return nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
