"""The contract of a model: of its encoder, its causal form, its decoder, its costs, and of its training."""

from collections.abc import Mapping
from typing import Any

from trainables.testing.causality import CausalContract
from trainables.testing.contract import made
from trainables.testing.cost_formulas import CostContract
from trainables.testing.decoder import DecoderContract
from trainables.testing.encoder import EncoderContract
from trainables.testing.exits import EarlyExitContract
from trainables.testing.graphs import GraphContract
from trainables.testing.resuming import ResumeContract


class ModelContract(
    EncoderContract,
    EarlyExitContract,
    CausalContract,
    DecoderContract,
    CostContract,
    ResumeContract,
    GraphContract,
):
    """All that is promised of a model. What it has no part for is skipped, with the reason.

    A subclass sets `model`, and may set `settings` (its small version), `arms` (further ones, by label),
    `task` and `train` (of the resumed training), and a method `lively` (inputs halt at different depths).
    Whatever is compared is computed in float64, so that a model must compute in the type of its weights.
    """


def model_contract(
    name: str,
    settings: Mapping[str, Any] | None = None,
    arms: Mapping[str, Mapping[str, Any]] | None = None,
) -> type[ModelContract]:
    """A class of tests for the model `name`: its name, or that of its module with its dots.

    `settings` are those of a small version, `arms` further ones by label. Raises ImportError without pytest.
    """
    return made(ModelContract, model=name, settings=settings or {}, arms=arms or {})
