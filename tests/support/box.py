"""The models of the box under their contract, and all their arms by one label each."""

from typing import Any

from tests.support.published import arms_of
from trainables import catalog
from trainables.testing import ModelContract, model_contract

MODELS: dict[str, type[ModelContract]] = {
    name: model_contract(name, arms=arms_of(name)) for name in catalog.names("models")
}
"""By name. Arms are what a model's fields allow, and what the experiments are about."""


def every(argument: str) -> dict[str, dict[str, Any]]:
    """Arms of all models that a contract's tests with this argument get, e.g. `writing`."""
    return {
        f"{name}, {label}": raw
        for name, contract in MODELS.items()
        for label, raw in getattr(contract(), f"every_{argument}")().items()
    }


def built(raw: dict[str, Any], *shape: Any) -> Any:
    """The model, in float64 and with halting that differs."""
    return MODELS[raw["name"]]().built(raw, *shape)
