"""Define the settings under `train` in a spec, without importing torch."""

from collections.abc import Mapping
from math import ceil
from typing import Annotated, Any, Final, Literal

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from trainables.decoding.decode_config import DecodeConfig
from trainables.field_effects import Affects
from trainables.settings import OMIT_DEFAULT, NonNegative, Positive, Settings
from trainables.training import normal_forms

Schedule = Literal["constant", "warmup", "rsqrt", "linear", "cosine"]
Precision = Literal["fp32", "tf32", "bf16", "fp16"]
ON_CUDA: Final = ("tf32", "fp16")
"""Precisions that need a CUDA device."""
Beta = Annotated[float, Field(ge=0, lt=1)]
Decay = Annotated[float, Field(gt=0, lt=1)]


class LearningConfig(Settings):
    """Optimiser, schedule, order of data and measurements of one trial.

    The defaults are the ListOps settings of the papers, except for a constant schedule and its learning rate.
    """

    steps: PositiveInt
    """Number of optimiser steps."""
    batch_size: Annotated[PositiveInt, Affects("steps", normal_forms.batch_size)] = 32
    """Number of samples per step. All batches are full: a batch may span two passes over the data."""
    batch_tokens: Annotated[PositiveInt | None, Affects("steps", normal_forms.batch_tokens)] = None
    """Maximum number of tokens per step, padding included, instead of a number of samples. A batch has at
    least one sample; of input and answer, the longer one counts. Needs order `bucketed`."""
    accumulate: Annotated[PositiveInt, Affects("steps", normal_forms.accumulate), OMIT_DEFAULT] = 1
    """Number of parts of each batch. Parts run one after the other and their gradients are added, so memory
    holds only one part. Means over samples are unchanged up to rounding; the balance of experts is computed
    for each part, as on separate GPUs. A batch of fewer samples has as many parts as samples."""
    ranks: Annotated[PositiveInt, Affects("running"), OMIT_DEFAULT] = 1
    """Number of processes on one machine that share each batch. If a trial has two or more GPUs, `ranks` must
    equal `resources.gpus`, and each process has one GPU; without GPUs all processes use the CPU. Results
    equal those of one process with `ranks * accumulate` parts. Only the first process measures, reports and
    saves."""
    checkpoint_activations: Annotated[bool, Affects("running"), OMIT_DEFAULT] = False
    """Whether the backward pass runs layers again instead of storing their activations. This costs one more
    forward pass, and memory hardly grows with the number of layers. Results are equal up to rounding."""
    order: Annotated[Literal["random", "bucketed"], Affects("steps", normal_forms.order)] = "random"
    """`random`: shuffle all samples. `bucketed`: put samples of similar length into one batch, which saves
    padding, and shuffle the batches."""

    optimizer: Literal["adamw", "ranger"] = "adamw"
    """`ranger`: RAdam with Lookahead, which every 5 steps moves the slow weights by 0.8 of the way to the
    fast ones, as in the training of CRvNN."""
    lr: Annotated[Positive, Affects("rates")] = 5e-4
    """Peak learning rate, except for `rsqrt`, where the peak is lr / sqrt(warmup_steps)."""
    schedule: Annotated[Schedule, Affects("rates")] = "constant"
    """Course of the learning rate. `warmup`: linear rise, then constant. `rsqrt`: linear rise, then lr /
    sqrt(step). `linear`: one cycle, from lr / 25 up to lr and down to lr / 250000. `cosine`: linear rise,
    constant for `hold_steps`, then half a cosine down to 0."""
    halve_after: Annotated[NonNegativeInt | None, Affects("steps", normal_forms.halve_after)] = None
    """Number of successive validations without improvement that are tolerated. One more halves the learning
    rate of any schedule and restarts the count. Null: never halve."""
    warmup_steps: Annotated[NonNegativeInt, Affects("rates")] = 0
    """Number of steps of the linear rise, at most `steps`."""
    hold_steps: Annotated[NonNegativeInt, Affects("rates")] = 0
    """`cosine` only: number of steps at the peak. In the published training of looped Transformers, the
    learning rate falls after the end of the curriculum."""
    onecycle_beta1: Annotated[bool, Affects("rates")] = False
    """`linear` only: beta1 falls from 0.95 to 0.85 while the learning rate rises, then rises to 0.95;
    `betas[0]` is ignored. This is the default of PyTorch's OneCycleLR, which the published FlipFlop and
    Pathfinder runs used."""
    betas: Annotated[tuple[Beta, Beta], Field(strict=False), Affects("rates")] = (0.9, 0.98)
    """Decay rates of the first and the second moment of the optimiser."""
    eps: Annotated[Positive, Affects("steps", normal_forms.eps)] = 1e-8
    """Constant that the optimiser adds to the root of the second moment."""
    weight_decay: Annotated[NonNegative, Affects("steps", normal_forms.weight_decay)] = 0.1
    """Decoupled weight decay of all parameters, including biases and norms."""
    clip: Annotated[Positive | None, Affects("steps", normal_forms.clip)] = 1.0
    """Maximum norm of the gradient of all parameters together. Null: no clipping."""
    ponder_weight: Annotated[NonNegative, Affects("loss")] = 0.1
    """Weight beta of the mean ponder cost in the training loss."""
    auxiliary_weight: Annotated[NonNegative, Affects("loss")] = 0.01
    """Weight of the mean auxiliary cost in the training loss, for models with an auxiliary cost. The default
    is the weight of CRvNN's halt penalty."""

    label_smoothing: Annotated[float, Field(ge=0, lt=1), Affects("loss")] = 0.0
    """Probability that label smoothing spreads evenly over all classes (Szegedy et al. 2016). Reported losses
    are not smoothed."""
    ema: Annotated[Decay | None, Affects("selecting", normal_forms.ema)] = None
    """Decay per step of a moving average of the weights, which starts at the initial weights. Validation,
    selection and tests use the average; training does not. Null: no average."""

    report_every: Annotated[PositiveInt, Affects("measuring", normal_forms.report_every)] = 500
    """Number of steps between two reports. Each report includes a validation and is a rung of early stopping.
    The last step always has a report."""
    select: Annotated[Literal["best", "last"], Affects("selecting", normal_forms.select)] = "best"
    """Weights that are evaluated on test splits: those of the best validation, or those of the last step."""
    select_by: Annotated[Literal["accuracy", "loss"], Affects("selecting", normal_forms.select_by)] = (
        "accuracy"
    )
    """Metric that compares validations: a higher valid/accuracy, or a lower valid/loss, is better."""
    average_best: Annotated[PositiveInt, Affects("selecting", normal_forms.average_best)] = 1
    """Number of best validations whose weights are averaged at the end; only if `select` is `best`."""
    patience: Annotated[NonNegativeInt | None, Affects("steps", normal_forms.patience)] = None
    """Number of successive validations without improvement that are tolerated. One more ends the training.
    Null: training never ends early."""
    valid_examples: Annotated[PositiveInt | None, Affects("measuring", normal_forms.valid_examples)] = None
    """Maximum number of validation samples, which are the same for all trials. Null: all samples."""
    eval_batch_size: Annotated[PositiveInt, Affects("running")] = 128
    """Maximum number of samples per batch in evaluation."""
    eval_tokens: Annotated[PositiveInt, Affects("running")] = 65536
    """Maximum number of tokens per batch in evaluation, padding included; limits the memory for long
    inputs."""

    precision: Precision = "fp32"
    """Number format in matrix products; weights and their updates always have 32 bits. `fp32`: 32 bits.
    `tf32`: 32 bits, but factors are rounded to a mantissa of 10 bits; needs CUDA. `bf16`: autocast to 16 bits
    with the range of 32 and a mantissa of 7. `fp16`: autocast to 16 bits with a mantissa of 10, and a
    scaled loss; needs CUDA."""
    graph: Annotated[Literal["auto"] | bool, Affects("running"), OMIT_DEFAULT] = "auto"
    """Whether to capture the forward and backward pass once for each number of tokens as a CUDA graph and
    replay the graph, so that the GPU does not wait for its host. Batches are filled with rows that do not
    affect the loss, and all layers run, even with `early_exit`. Results are equal up to rounding. Needs a
    CUDA device; `plan` refuses models and tasks that cannot be captured. `auto` is currently false on all
    devices, because these graphs have not been confirmed on a GPU."""
    threads: Annotated[int, Affects("running")] = Field(default=1, ge=1, le=1024)
    """Number of CPU threads of PyTorch. The last bits of sums depend on this number; with 1 thread results
    are equal on all machines."""

    @model_validator(mode="after")
    def _refuse_ignored_fields(self) -> "LearningConfig":
        compares = self.select == "best" or self.patience is not None or self.halve_after is not None
        total = self.warmup_steps + self.hold_steps
        rise = "warmup_steps + hold_steps" if self.hold_steps else "warmup_steps"
        refusals = {
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
        for message, is_refused in refusals.items():
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
            name := next((name for name, is_given in other_reasons.items() if is_given), None)
        ):
            raise ValueError(
                f"graph must be false with {name}, whose passes cannot be captured, got graph=True and "
                f"{name}={getattr(self, name)}: drop one of them"
            )
        return self

    @model_validator(mode="after")
    def _parts_have_samples(self) -> "LearningConfig":
        unit = "batch_size" if self.batch_tokens is None else "batch_tokens"
        if self.parts > (limit := getattr(self, unit)):
            ranks = "" if self.ranks == 1 else f", ranks={self.ranks}"
            raise ValueError(
                f"accumulate{' * ranks' if ranks else ''} must be at most {unit}, got "
                f"accumulate={self.accumulate}{ranks} and {unit}={limit}: take fewer parts, so that each "
                "has a sample"
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
