"""Define the settings under `train` in a spec, without importing torch."""

from collections.abc import Mapping
from math import ceil
from typing import Annotated, Any, Final, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from trainables.acting import Affects
from trainables.decoding.decode_config import DecodeConfig
from trainables.settings import LATER, NonNegative, Positive, Settings
from trainables.training import likes

Schedule = Literal["constant", "warmup", "rsqrt", "linear", "cosine"]
Precision = Literal["fp32", "tf32", "bf16", "fp16"]
ON_CUDA: Final = ("tf32", "fp16")
"""Precisions that need a CUDA device."""
Beta = Annotated[float, Field(ge=0, lt=1)]
Decay = Annotated[float, Field(gt=0, lt=1)]


class LearningConfig(Settings):
    """Optimiser, schedule, data order and measuring of one trial.

    The defaults are the papers' ListOps settings, except for the schedule, which is constant until a warm-up
    is asked for, and the learning rate that goes with it.
    """

    steps: PositiveInt
    """Optimiser steps in all."""
    batch_size: Annotated[PositiveInt, Affects("steps", likes.batch_size)] = 32
    """Samples a step. Every batch is full: one may begin in one pass over the data and end in the next."""
    batch_tokens: Annotated[PositiveInt | None, Affects("steps", likes.batch_tokens)] = None
    """Tokens a step in place of samples: as many samples of like length as fit with their padding, where the
    longer of input and answer counts, but at least one. Needs order `bucketed`."""
    accumulate: Annotated[PositiveInt, Affects("steps", likes.accumulate), LATER] = 1
    """Parts of each batch that are run one after the other, their gradients added up: memory is that of one,
    and all that is a mean over samples is as without, up to rounding. The balance of experts is that of each
    part, as on so many GPUs with a part each. A batch of fewer samples has as many parts as samples."""
    ranks: Annotated[PositiveInt, Affects("running"), LATER] = 1
    """Processes that share each batch, on one machine: as many as `resources.gpus`, where a trial has two or
    more, each with a GPU of its own; without GPUs so many on the CPU. All is as with one that runs each batch
    in `ranks * accumulate` parts; the first one alone measures, reports and saves."""
    checkpoint_activations: Annotated[bool, Affects("running"), LATER] = False
    """Layers are run again in the backward pass, in place of keeping all that is inside of them: a forward
    pass more, for memory that hardly grows with the number of layers. Results are as without, up to
    rounding."""
    order: Annotated[Literal["random", "bucketed"], Affects("steps", likes.order)] = "random"
    """`bucketed` puts samples of like length together (less padding) and shuffles the batches."""

    optimizer: Literal["adamw", "ranger"] = "adamw"
    """`ranger`: RAdam with Lookahead: every 5 steps it takes 0.8 of the way, as CRvNN was trained."""
    lr: Annotated[Positive, Affects("rates")] = 5e-4
    """Peak learning rate, except for `rsqrt`, where the peak is lr / sqrt(warmup_steps)."""
    schedule: Annotated[Schedule, Affects("rates")] = "constant"
    """`warmup`: linear rise, then constant. `rsqrt`: linear rise, then lr / sqrt(step). `linear`: one cycle,
    up from lr / 25 and down to lr / 250000. `cosine`: linear rise, `hold_steps`, half a cosine down to 0."""
    halve_after: Annotated[NonNegativeInt | None, Affects("steps", likes.halve_after)] = None
    """Validations without a better one that are let pass; one more halves the learning rate, and the count
    begins anew. On top of any schedule; null never halves."""
    warmup_steps: Annotated[NonNegativeInt, Affects("rates")] = 0
    """Steps of the rise; not more than `steps`."""
    hold_steps: Annotated[NonNegativeInt, Affects("rates")] = 0
    """`cosine` only: steps at the peak between rise and fall. The published looped Transformers fall once
    their curriculum has reached its end."""
    onecycle_beta1: Annotated[bool, Affects("rates")] = False
    """`linear` only: beta1 goes 0.95, 0.85, 0.95 against the learning rate, whatever `betas` says. PyTorch's
    OneCycleLR does so by default, and so did the published FlipFlop and Pathfinder runs."""
    betas: Annotated[tuple[Beta, Beta], Field(strict=False), Affects("rates")] = (0.9, 0.98)
    """Decay rates of the two moments."""
    eps: Annotated[Positive, Affects("steps", likes.eps)] = 1e-8
    """Added to the root of the second moment."""
    weight_decay: Annotated[NonNegative, Affects("steps", likes.weight_decay)] = 0.1
    """Decoupled weight decay, on every parameter, biases and norms included."""
    clip: Annotated[Positive | None, Affects("steps", likes.clip)] = 1.0
    """Largest norm of the whole gradient; null does not clip."""
    ponder_weight: Annotated[NonNegative, Affects("loss")] = 0.1
    """Weight beta of the mean ponder cost in the training loss."""
    auxiliary_weight: Annotated[NonNegative, Affects("loss")] = 0.01
    """Weight of the mean auxiliary cost in the training loss, in models that have one. The default is that of
    CRvNN's halt penalty."""

    label_smoothing: Annotated[float, Field(ge=0, lt=1), Affects("loss")] = 0.0
    """Share of the training loss that takes all classes for equally right (Szegedy et al. 2016). What is
    reported as loss is never smoothed."""
    ema: Annotated[Decay | None, Affects("selecting", likes.ema)] = None
    """Decay a step of a moving average of the weights, from the initial ones on. Validation, selection and
    tests read the average, training never does; null keeps none."""

    report_every: Annotated[PositiveInt, Affects("measuring", likes.report_every)] = 500
    """Steps between two measurements, each with a validation; the rungs of early stopping. The last step is
    always measured."""
    select: Annotated[Literal["best", "last"], Affects("selecting", likes.select)] = "best"
    """Weights the test splits are read with: those of the best validation, or the last."""
    select_by: Annotated[Literal["accuracy", "loss"], Affects("selecting", likes.select_by)] = "accuracy"
    """What makes a validation the better one: a higher valid/accuracy, or a lower valid/loss."""
    average_best: Annotated[PositiveInt, Affects("selecting", likes.average_best)] = 1
    """Of how many of the best validations the mean of the weights is taken in the end; only where `select` is
    `best`."""
    patience: Annotated[NonNegativeInt | None, Affects("steps", likes.patience)] = None
    """Validations without a better one that are let pass; one more ends the training. Null: none does."""
    valid_examples: Annotated[PositiveInt | None, Affects("measuring", likes.valid_examples)] = None
    """Most validation samples, the same for every trial; null takes all."""
    eval_batch_size: Annotated[PositiveInt, Affects("running")] = 128
    """Most samples a batch when measuring."""
    eval_tokens: Annotated[PositiveInt, Affects("running")] = 65536
    """Most tokens, padding included, a batch when measuring: bounds the memory of long splits."""

    precision: Precision = "fp32"
    """Numbers in products of matrices; weights and their updates have 32 bits in any case. `fp32`: 32 bits.
    `tf32`: 32 bits, but factors are rounded to a mantissa of 10 bits; needs CUDA. `bf16`: autocast to 16 bits
    with the range of 32 and a mantissa of 7. `fp16`: autocast to 16 bits with a mantissa of 10, and a
    scaled loss; needs CUDA."""
    graph: Annotated[Literal["auto"] | bool, Affects("running"), LATER] = "auto"
    """Capture the forward and backward pass of each number of tokens once as a CUDA graph, and replay it: a
    GPU then does not wait for its host. Batches are filled up with rows that nothing is learned from; every
    layer is run, whatever `early_exit` says of training steps. Results are as without, up to rounding. Needs
    a CUDA device, and a model and task of which `plan` does not refuse it. `auto` is false everywhere: no GPU
    has confirmed these graphs yet."""
    threads: Annotated[int, Affects("running")] = Field(default=1, ge=1, le=1024)
    """CPU threads of PyTorch. Sums depend on it in the last bit; one makes every machine agree."""

    @model_validator(mode="after")
    def _refuse_ignored_fields(self) -> "LearningConfig":
        compares = self.select == "best" or self.patience is not None or self.halve_after is not None
        total = self.warmup_steps + self.hold_steps
        rise = "warmup_steps + hold_steps" if self.hold_steps else "warmup_steps"
        refused = {
            f"warmup_steps must be 0 with schedule 'constant', got {self.warmup_steps}: choose schedule "
            "'warmup' (then constant), 'rsqrt', 'linear' or 'cosine'": (
                self.schedule == "constant" and self.warmup_steps
            ),
            f"batch_tokens needs order 'bucketed', got {self.order!r}: set it or give batch_size instead": (
                self.batch_tokens is not None and self.order != "bucketed"
            ),
            f"average_best needs select 'best', got average_best={self.average_best} and "
            f"select={self.select!r}: drop one of them": self.average_best > 1 and self.select != "best",
            "select_by needs validations that are compared, got select_by='loss' with select='last' and "
            "neither patience nor halve_after: drop it or set one of these": (
                self.select_by == "loss" and not compares
            ),
            f"hold_steps needs schedule 'cosine', got hold_steps={self.hold_steps} and "
            f"schedule={self.schedule!r}: drop it or change the schedule": (
                self.hold_steps and self.schedule != "cosine"
            ),
            f"{rise} must be at most steps, got {total} and steps={self.steps}: lower it or raise steps": (
                total > self.steps
            ),
            f"onecycle_beta1 needs schedule 'linear', got {self.schedule!r}: drop it or change that": (
                self.onecycle_beta1 and self.schedule != "linear"
            ),
        }
        for message, is_refused in refused.items():
            if is_refused:
                raise ValueError(message)
        return self

    @model_validator(mode="after")
    def _steps_can_be_captured(self) -> "LearningConfig":
        other_reasons = {
            "ranks": self.ranks > 1,
            "checkpoint_activations": self.checkpoint_activations,
            "batch_tokens": self.batch_tokens is not None,
        }
        if self.graph is True and (
            name := next((name for name, given in other_reasons.items() if given), None)
        ):
            raise ValueError(
                f"graph must be false with {name}, whose passes cannot be captured, got graph=True and "
                f"{name}={getattr(self, name)}: drop one of them"
            )
        return self

    @model_validator(mode="after")
    def _parts_have_samples(self) -> "LearningConfig":
        of = "batch_size" if self.batch_tokens is None else "batch_tokens"
        if self.parts > (limit := getattr(self, of)):
            ranks = "" if self.ranks == 1 else f", ranks={self.ranks}"
            raise ValueError(
                f"accumulate{' * ranks' if ranks else ''} must be at most {of}, got "
                f"accumulate={self.accumulate}{ranks} and {of}={limit}: take fewer parts, so that each has a "
                "sample"
            )
        if self.ranks > 1 and self.precision == "fp16":
            raise ValueError(
                "precision must be bf16 or fp32 if ranks share a batch, got 'fp16' and "
                f"ranks={self.ranks}: choose bf16"
            )
        return self

    def batch_rows(self, length: int) -> int:
        """Return the number of samples per step if all have `length` tokens."""
        return self.batch_size if self.batch_tokens is None else max(1, self.batch_tokens // length)

    def part_rows(self, length: int) -> int:
        """Return the greatest number of samples that run at once if all have `length` tokens."""
        return ceil(self.batch_rows(length) / self.parts)

    @property
    def parts(self) -> int:
        """Return the number of parts into which each batch is divided."""
        return self.accumulate * self.ranks


class TrainConfig(DecodeConfig, LearningConfig):
    """Everything under `train`: how weights are learned and measured, then how answers are decoded."""


def train_config(raw: Mapping[str, Any]) -> TrainConfig:
    """Return the validated mapping `train` of a spec. Raises pydantic's ValidationError with all faults."""
    return TrainConfig.model_validate(dict(raw))
