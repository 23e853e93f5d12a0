"""Define the contract of a model: encoder, causal form, decoder, costs and training."""

from collections.abc import Mapping
from typing import Any

from trainables.testing.causality import CausalContract
from trainables.testing.contract import contract_class
from trainables.testing.cost_formulas import CostContract
from trainables.testing.decoder import DecoderContract
from trainables.testing.encoder import EncoderContract
from trainables.testing.exits import EarlyExitContract
from trainables.testing.resuming import ResumeContract


class ModelContract(
    EncoderContract,
    EarlyExitContract,
    CausalContract,
    DecoderContract,
    CostContract,
    ResumeContract,
):
    """Tests of a model. Tests for parts that the model lacks are skipped with a reason.

    A subclass sets `model`, and may set `settings` (of its small version), `arms` (further ones, by label),
    `task` and `train` (of the resumed training), and a method `lively` (makes inputs halt at different
    depths). Comparisons use float64, so a model must compute in the dtype of its weights.
    """


def model_contract(
    name: str,
    settings: Mapping[str, Any] | None = None,
    arms: Mapping[str, Mapping[str, Any]] | None = None,
) -> type[ModelContract]:
    """Return a class of tests for the model `name`.

    Args:
        name: Name of the model, or dotted name of its module.
        settings: Settings of a small version.
        arms: Further settings by label.

    Raises:
        ImportError: pytest is not installed.
    """
    return contract_class(ModelContract, model=name, settings=settings or {}, arms=arms or {})
