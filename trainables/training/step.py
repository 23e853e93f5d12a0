"""One optimiser step, shared by training loop, proofs of the planner and calibration of prices."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from trainables.assembly import batch_norm, batch_statistics
from trainables.checkpoint import weights
from trainables.layers.batch_parts import BatchPart, running_on
from trainables.layers.dropout import set_dropout_context
from trainables.layers.recomputing import can_recompute, recompute
from trainables.threads import cpu_threads
from trainables.training.config import ON_CUDA, TrainConfig
from trainables.training.optimizers import make_optimizer
from trainables.training.ranks import Ranks
from trainables.training.schedule import beta1, learning_rate
from trainables.training.selected_weights import copied, follow
from trainables.types import NOT_ASKED, Batch, Output

_AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step saw, before it changed the weights. Detached scalars on the model's device."""

    loss: Float[Tensor, ""]
    """Mean main loss, without the ponder cost."""
    ponder: Float[Tensor, ""]
    """Mean ponder cost in layers, unweighted."""
    gradient_norm: Float[Tensor, ""]
    """Euclidean norm of the whole gradient before clipping."""
    hits: Float[Tensor, ""]
    counts: Float[Tensor, ""]
    tokens: Int[Tensor, ""]
    """Real tokens of the batch."""

    def row(self) -> Float[Tensor, " 6"]:
        """All values as one float64 tensor, in the order of the fields: a single transfer to the host."""
        values = (self.loss, self.ponder, self.gradient_norm, self.hits, self.counts, self.tokens)
        return torch.stack([value.double() for value in values])


class CapturedPasses(Protocol):
    """Forward and backward passes that were captured before: `training.graphed`."""

    def backward(self, batch: Batch, step: int) -> tuple[Tensor, ...]:
        """Do what `compute_gradients` does."""
        raise NotImplementedError


class Learner:
    """A model with its optimiser: all that a step changes.

    Raises ValueError if `precision` needs a CUDA device and the model is on none, or for what `misfit` says.
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
        if (why := misfit(model, config)) is not None:
            raise ValueError(why)
        if config.checkpoint_activations:
            recompute(model)
        self.ranks: Ranks | None = None
        """The other processes that share its batches, where there are any."""
        self.graphs: CapturedPasses | None = None
        """Captured forward and backward passes, where steps replay them."""
        self.rate_scale = 1.0
        """Factor of the scheduled learning rate, lowered when validations stop improving."""
        self.average = None if config.ema is None else copied(weights(model))
        """What is measured in place of the weights, if a moving average is asked for."""
        self.optimizer = make_optimizer(model, config)
        self.scaler = torch.amp.GradScaler("cuda", enabled=config.precision == "fp16")

    def autocast(self, *, caches: bool = True) -> AbstractContextManager[None]:
        """Where forward passes run in 16 bits, where that was asked for.

        `caches`: a weight is cast once for all its uses.
        """
        dtype = _AUTOCAST.get(self.config.precision)
        return torch.autocast(self.device.type, dtype=dtype, enabled=dtype is not None, cache_enabled=caches)


def misfit(model: nn.Module, config: TrainConfig) -> str | None:
    """Why steps of `config` cannot be taken with `model`, as `must ..., got ...`; None where they can."""
    if config.checkpoint_activations and not can_recompute(model):
        return (
            "checkpoint_activations must be false for a model without layers that can be run again in the "
            "backward pass, got true: drop it, or derive layers from "
            "trainables.layers.recomputing.RecomputableLayer"
        )
    if config.graph is True and (norm := batch_norm(model)) is not None:
        return (
            f"graph must be false for a model that norms over all samples of a batch, got {norm}: drop "
            "train.graph, or norm each sample for itself"
        )
    return batch_statistics(model) if config.parts > 1 else None


def objective(output: Output, config: TrainConfig) -> Float[Tensor, ""]:
    """What is minimised: the mean main loss plus the weighted means of ponder cost and auxiliary cost.

    Of the main loss, `label_smoothing` is taken against all classes alike. Ray Chowdhury and Caragea,
    Investigating Recurrent Transformers with Dynamic Halt, Eq. 8; the weight is applied and the mean over the
    batch taken as in the released code, while training only.
    """
    main, smoothing = output.loss.mean(), config.label_smoothing
    if smoothing:
        assert output.uniform is not None, "a head that is to be smoothed must say what all classes cost"
        main = (1 - smoothing) * main + smoothing * output.uniform.mean()
    total = main + config.ponder_weight * output.encoded.ponder.mean()
    weight, auxiliary = config.auxiliary_weight, output.encoded.auxiliary
    return total if auxiliary is None else total + weight * auxiliary.mean()


def one_step(learner: Learner, batch: Batch, step: int) -> StepResult:
    """Forward, backward, clip and update on `batch` as optimiser step number `step`, counted from 0.

    The rate, beta1 and dropout depend on `step` alone, so a step can be repeated anywhere. Nothing is checked
    and nothing waits for the device: whether the result is finite is for the caller to see. The gradients, as
    clipped, stay on the parameters until the next step.
    """
    with cpu_threads(learner.config.threads):
        loss, ponder, hits, counts = compute_gradients(learner, batch, step)
        norm = _update(learner, step)
        if learner.average is not None and learner.config.ema is not None:
            follow(learner.average, learner.model, learner.config.ema)
    # Graphed passes take batches from the host.
    tokens = batch.mask.sum().to(learner.device, non_blocking=True)
    return StepResult(loss, ponder, norm, hits, counts, tokens)


def compute_gradients(learner: Learner, batch: Batch, step: int) -> tuple[Tensor, ...]:
    """Gradients of the objective, scaled in fp16, are put on the parameters.

    Mean loss, mean ponder cost, hits and predictions of the batch. It is run in as many parts as are asked
    for, or as it has rows if these are fewer; the means of each part count by its share of the rows.
    """
    learner.optimizer.zero_grad(set_to_none=True)
    if learner.ranks is not None:
        learner.ranks.begin(step)
        return learner.ranks.gather(_share(learner, batch, step, 0)).unbind()
    if learner.graphs is not None:
        return learner.graphs.backward(batch, step)
    parts = min(learner.config.parts, len(batch.labels))
    if parts == 1:
        return _backward_of_part(learner, batch, step)
    return tuple(_backward_of_parts(learner, batch, step, range(parts)).unbind())


def share_of_step(learner: Learner, batch: Batch, step: int, rank: int) -> Float[Tensor, " 4"]:
    """What rank number `rank` does of a step: gradients of its parts of the batch, and the sums above."""
    with cpu_threads(learner.config.threads):
        learner.optimizer.zero_grad(set_to_none=True)
        return _share(learner, batch, step, rank)


def _share(learner: Learner, batch: Batch, step: int, rank: int) -> Float[Tensor, " 4"]:
    each = learner.config.accumulate
    return _backward_of_parts(learner, batch, step, range(rank * each, (rank + 1) * each))


def _backward_of_parts(learner: Learner, batch: Batch, step: int, numbers: range) -> Float[Tensor, " 4"]:
    """The sums of `compute_gradients` over parts of these `numbers`, of which there may be none."""
    whole = len(batch.labels)
    found = torch.zeros(4, dtype=torch.float64, device=learner.device)
    for number, part in enumerate(parts_of(batch, min(learner.config.parts, whole))):
        if number in numbers:
            with running_on(part):
                rows = batch.rows(part.first, part.first + part.rows)
                seen = _backward_of_part(learner, rows, step, number, part.rows / whole)
            found += torch.stack([each.double() for each in seen])
    return found


def parts_of(batch: Batch, parts: int) -> Iterator[BatchPart]:
    """As even as can be, the larger ones first."""
    whole, first = len(batch.labels), 0
    asked = batch.labels != NOT_ASKED
    for number in range(parts):
        rows = whole // parts + (number < whole % parts)
        yield BatchPart(first, rows, whole, first if asked.dim() == 1 else asked[:first].sum())
        first += rows


def _backward_of_part(
    learner: Learner, rows: Batch, step: int, number: int = 0, share: float = 1.0
) -> tuple[Tensor, ...]:
    """The same of part `number` of a batch, `share` of its rows; its means are weighted by that."""
    set_dropout_context(learner.model, learner.seed, step, number)
    with learner.autocast():
        output: Output = learner.model(rows)
        total, sums = weighted_objective(output, learner, share)
    total.backward()  # type: ignore[no-untyped-call]
    return sums


def weighted_objective(output: Output, learner: Learner, share: float) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return what a backward pass begins at, scaled in fp16, and detached what `compute_gradients` returns.

    Means of a part of a batch are weighted by its `share` of the rows.
    """
    total = objective(output, learner.config)
    loss, ponder = output.loss.detach().mean(), output.encoded.ponder.detach().mean()
    if share != 1:
        loss, ponder, total = loss * share, ponder * share, total * share
    sums = loss, ponder, output.hits.detach().sum(), output.counts.detach().sum()
    return learner.scaler.scale(total), sums


def _update(learner: Learner, step: int) -> Float[Tensor, ""]:
    """Clip and step; the norm of the gradient before."""
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
    """Scale the gradient down to norm `clip` if it is longer; the norm it had."""
    parameters = list(model.parameters())
    if clip is not None:
        return nn.utils.clip_grad_norm_(parameters, clip)
    return nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
