"""Define the test cases of model contracts: a small version, its arms, and how they are built and run."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from trainables import catalog
from trainables.assembly import build_model, misfit, model_config
from trainables.layers.dropout import set_dropout_context
from trainables.testing.arms import BASE, EXIT, Raw, base, is_valid_for, variations
from trainables.testing.contract import Contract, check, check_close
from trainables.types import Batch, Encoded, Output, TaskShape

SHAPE = TaskShape(head="classify", vocabulary_size=7, num_classes=5, pad_id=6, length_max=20)
LENGTHS = (5, 1, 9, 3)
"""Row lengths of a batch: full, short, and one token."""
SEED = 3
LIVELY, OFFSET = 8.0, 0.5
Gradients = dict[str, Tensor]


class ModelCases(Contract):
    """Attributes that a user sets, and the arms derived from them."""

    model: ClassVar[str] = ""
    """Name of the model, or dotted name of its module."""
    settings: ClassVar[Mapping[str, Any]] = {}
    """Settings of the small version; fields marked with `Small` default to their small values."""
    arms: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Further arms by label, as settings in addition to the small version, e.g. two fields that need each
    other.
    """
    none: ClassVar[Mapping[str, str]] = {
        "exiting": f"the model has no field {EXIT}",
        "causal": "the model has neither a field nor a property `causal`",
        "writing": "the model has no class Decoder",
        "graphed": "the model does not declare GRAPHED, or its function `ungraphed` excludes all arms",
    }

    def every_arm(self) -> dict[str, Raw]:
        """Return the small version and all versions with one other choice. Raises BadName, ValueError."""
        if not self.model:
            raise ValueError("a contract must name its model, got none; set `model` in the class")
        small_settings = base(self.model, self.settings)
        arms = variations(small_settings, SHAPE)
        for label, changed in {BASE: {}, **self.arms}.items():
            raw = model_config(arms[BASE] | dict(changed)).model_dump(mode="json")
            if (reason := misfit(model_config(raw), SHAPE)) is not None:
                raise ValueError(f"{self.model} {reason}, in the arm {label!r}")
            if raw not in arms.values():
                arms[label] = raw
        return arms

    def every_exiting(self) -> dict[str, Raw]:
        """Return all arms if the model has a field `early_exit`; otherwise no arm."""
        return self.every_arm() if EXIT in self._fields() else {}

    def every_causal(self) -> dict[str, Raw]:
        """Return the arms in which no token attends to later tokens."""
        if "causal" not in self._fields():
            config = catalog.config_class("models", self.model)
            return self.every_arm() if hasattr(config, "causal") else {}
        causal = {label: raw | {"causal": True} for label, raw in self.every_arm().items()}
        return {
            label: raw for label, raw in causal.items() if "causal=" not in label and is_valid_for(raw, SHAPE)
        }

    def every_writing(self) -> dict[str, Raw]:
        """Return all arms if the model has a decoder; otherwise no arm."""
        return self.every_arm() if hasattr(catalog.load("models", self.model), "Decoder") else {}

    def lively(self, model: nn.Module) -> None:
        """Change the initial weights so that inputs halt at different depths, for tests that compare depths.

        The default changes the built-in halting functions. Override it for a model whose initial weights make
        all inputs halt at the same depth, because otherwise the tests hardly cover halting.
        """
        enliven(model, LIVELY, OFFSET)

    def built(self, raw: Mapping[str, Any], shape: TaskShape = SHAPE) -> Any:
        """Return the model (nn.Module) in float64, so that comparisons can be strict."""
        model = build_model(raw, shape, SEED).double()
        self.lively(model)
        return model

    def _fields(self) -> Mapping[str, Any]:
        return catalog.config_class("models", self.model).model_fields


def enliven(model: nn.Module, factor: float, offset: float = 0.0) -> None:
    """Scale the halting weights by `factor` and shift the bias, so that halting differs between inputs."""
    for name, parameter in model.named_parameters():
        if name.endswith("halt.outer.weight"):
            if not parameter.any():
                parameter.data[-1].uniform_(0, 0.2, generator=torch.Generator().manual_seed(SEED))
            parameter.data.mul_(factor)
        if name.endswith("halt.outer.bias"):
            parameter.data.add_(offset)


def batch(lengths: Sequence[int] = LENGTHS, width: int | None = None) -> Batch:
    """Return a batch of random inputs of these lengths, right-padded to `width` tokens or to the longest."""
    stream = torch.Generator().manual_seed(len(lengths))
    width_max = max(lengths)
    tokens = torch.randint(0, SHAPE.vocabulary_size - 1, (len(lengths), width_max), generator=stream)
    labels = torch.randint(0, SHAPE.num_classes, (len(lengths),), generator=stream)
    columns = torch.arange(width or width_max)
    mask = columns < torch.tensor(lengths)[:, None]
    padded = torch.full((len(lengths), len(columns)), SHAPE.pad_id)
    padded[:, :width_max] = tokens
    return Batch(torch.where(mask, padded, SHAPE.pad_id), mask, labels)


def embed_tokens(model: nn.Module, batch: Batch) -> Tensor:
    """Return the embeddings of the tokens, without dropout."""
    return nn.functional.embedding(batch.tokens, model.embedding())  # type: ignore[operator]


def run_training_pass(model: nn.Module, batch: Batch, step: int = 1) -> tuple[Output, Gradients]:
    """Run one forward and backward pass with dropout; return the output and the gradients."""
    set_dropout_context(model.train(), SEED, step)
    output: Output = model(batch)
    auxiliary = 0 if output.encoded.auxiliary is None else output.encoded.auxiliary
    model.zero_grad()
    (output.loss + 0.1 * output.encoded.ponder + 0.1 * auxiliary).sum().backward()  # type: ignore[no-untyped-call]
    return output, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def check_same(actual: Encoded, expected: Encoded, subject: str, *, without: tuple[str, ...] = ()) -> None:
    """Fail unless two encoder outputs are equal up to rounding; the message begins with `subject`."""
    for field in dataclasses.fields(Encoded):
        if field.name not in without and getattr(actual, field.name) is not None:
            check_close(
                getattr(actual, field.name), getattr(expected, field.name), f"{subject}: {field.name}"
            )


def check_bounds(encoded: Encoded) -> None:
    """Fail unless depth and costs are within their bounds, and depth and work have no gradient."""
    orders = {
        "0 <= depth": (encoded.depth * 0, encoded.depth),
        "0 <= ponder": (encoded.ponder * 0, encoded.ponder),
        "depth <= computed": (encoded.depth, encoded.computed),
        "computed <= bound": (encoded.computed, encoded.bound),
        "ponder <= bound": (encoded.ponder, encoded.bound),
    }
    for subject, (lower, upper) in orders.items():
        check((lower <= upper + 1e-9).all(), f"{subject} must hold in every row, got {lower} and {upper}")
    for name in ("depth", "computed"):
        check(not getattr(encoded, name).requires_grad, f"{name} must be detached, got a gradient")
