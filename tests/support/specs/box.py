"""The models of the box under their contract, and all their arms by one label each."""

from functools import cache
from typing import Any

from tests.support.sweeps.merged import merged
from tests.support.sweeps.published import arms_of
from trainables import catalog
from trainables.testing import ModelContract
from trainables.testing.arms import BASE, base, fits, variations
from trainables.testing.cases import SHAPE
from trainables.testing.contract import contract_class


class BoxContract(ModelContract):
    """Arms differ in several choices at once: each value of a field is in one; and every published system."""

    def every_arm(self) -> dict[str, dict[str, Any]]:
        return arms(self.model)

    def every_causal(self) -> dict[str, dict[str, Any]]:
        return causal_arms(self.model) if "causal" in self._fields() else super().every_causal()

    def every_graphed(self) -> dict[str, dict[str, Any]]:
        """Two arms of GUTLB, whose passes have thousands of operators; TLB and GUT have its parts."""
        found = super().every_graphed()
        if self.model != "gutlb":
            return found
        return {label: raw for label, raw in found.items() if label == BASE or "halt.unit=token" in label}


@cache
def arms(model: str) -> dict[str, dict[str, Any]]:
    """All that `trainables.testing` would try one by one, and what the experiments are about."""
    return merged(base(model, {}), SHAPE) | arms_of(model)


@cache
def causal_arms(model: str) -> dict[str, dict[str, Any]]:
    """The same in causal form, merged anew: not all fits there."""
    published = {label: raw | {"causal": True} for label, raw in arms_of(model).items()}
    found = merged(base(model, {"causal": True}), SHAPE) | published
    return {label: raw for label, raw in found.items() if raw["causal"] and fits(raw, SHAPE)}


def one(model: str, label: str) -> dict[str, Any]:
    """The small version with a single change, e.g. `halt.unit=token`; itself without one."""
    return variations(base(model, {}), SHAPE)[label or BASE]


MODELS: dict[str, type[ModelContract]] = {
    name: contract_class(BoxContract, model=name, arms=arms_of(name)) for name in catalog.names("models")
}
"""By name."""


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
