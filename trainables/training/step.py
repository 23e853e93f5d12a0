"""One optimiser step, shared by training loop, proofs of the planner and calibration of prices."""

from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from trainables.checkpoint import weights
from trainables.layers.dropout import set_dropout_context
from trainables.threads import cpu_threads
from trainables.training.config import TrainConfig
from trainables.training.optimizers import make_optimizer
from trainables.training.schedule import beta1, learning_rate
from trainables.training.selected_weights import copied, follow
from trainables.types import Batch, Output

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


class Learner:
    """A model with its optimiser: all that a step changes.

    Raises ValueError if `fp16` is asked for away from a CUDA device.
    """

    def __init__(self, model: nn.Module, config: TrainConfig, *, seed: int) -> None:
        self.model = model
        self.config = config
        self.seed = seed
        self.device = next(model.parameters()).device
        if config.precision == "fp16" and self.device.type != "cuda":
            raise ValueError(
                f"precision 'fp16' needs a CUDA device, got a model on {self.device.type!r}: "
                "choose 'fp32' or 'bf16'"
            )
        self.rate_scale = 1.0
        """Factor of the scheduled learning rate, lowered when validations stop improving."""
        self.average = None if config.ema is None else copied(weights(model))
        """What is measured in place of the weights, if a moving average is asked for."""
        self.optimizer = make_optimizer(model, config)
        self.scaler = torch.amp.GradScaler("cuda", enabled=config.precision == "fp16")

    def autocast(self) -> AbstractContextManager[None]:
        """Where forward passes run in the precision that was asked for; does nothing for fp32."""
        precision = self.config.precision
        return torch.autocast(self.device.type, dtype=_AUTOCAST.get(precision), enabled=precision != "fp32")


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
        output = _backward(learner, batch, step)
        norm = _update(learner, step)
        if learner.average is not None and learner.config.ema is not None:
            follow(learner.average, learner.model, learner.config.ema)
    return StepResult(
        loss=output.loss.detach().mean(),
        ponder=output.encoded.ponder.detach().mean(),
        gradient_norm=norm,
        hits=output.hits.detach().sum(),
        counts=output.counts.detach().sum(),
        tokens=batch.mask.sum(),
    )


def _backward(learner: Learner, batch: Batch, step: int) -> Output:
    """The forward pass; gradients of the objective, scaled in fp16, are left on the parameters."""
    learner.optimizer.zero_grad(set_to_none=True)
    set_dropout_context(learner.model, learner.seed, step)
    with learner.autocast():
        output: Output = learner.model(batch)
        total = objective(output, learner.config)
    learner.scaler.scale(total).backward()  # type: ignore[no-untyped-call]
    return output


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
