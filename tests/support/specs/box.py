"""The built-in models under their contract, and all of their arms by label."""

from functools import cache
from typing import Any

from tests.support.sweeps.merged import merged_arms
from tests.support.sweeps.published import arms_of
from trainables import catalog
from trainables.testing import ModelContract
from trainables.testing.arms import BASE, base, is_valid_for, variations
from trainables.testing.cases import SHAPE
from trainables.testing.contract import contract_class


class BuiltInContract(ModelContract):
    """Arms that change several fields at once, so that one has each value, and published configs."""

    def every_arm(self) -> dict[str, dict[str, Any]]:
        return arms(self.model)

    def every_causal(self) -> dict[str, dict[str, Any]]:
        return causal_arms(self.model) if "causal" in self._fields() else super().every_causal()

    def every_graphed(self) -> dict[str, dict[str, Any]]:
        """Only two arms of GUTLB, whose passes have thousands of operators; TLB and GUT cover its parts."""
        graphed_arms = super().every_graphed()
        if self.model != "gutlb":
            return graphed_arms
        return {
            label: raw for label, raw in graphed_arms.items() if label == BASE or "halt.unit=token" in label
        }


@cache
def arms(model: str) -> dict[str, dict[str, Any]]:
    """Return the arms that cover every value of `trainables.testing`, and the arms of the experiments."""
    return merged_arms(base(model, {}), SHAPE) | arms_of(model)


@cache
def causal_arms(model: str) -> dict[str, dict[str, Any]]:
    """Return the same arms in causal form, without the settings that do not fit it."""
    published = {label: raw | {"causal": True} for label, raw in arms_of(model).items()}
    arms_by_label = merged_arms(base(model, {"causal": True}), SHAPE) | published
    return {label: raw for label, raw in arms_by_label.items() if raw["causal"] and is_valid_for(raw, SHAPE)}


def single_change(model: str, label: str) -> dict[str, Any]:
    """Return the small version with one change, e.g. `halt.unit=token`, or unchanged without a label."""
    return variations(base(model, {}), SHAPE)[label or BASE]


MODELS: dict[str, type[ModelContract]] = {
    name: contract_class(BuiltInContract, model=name, arms=arms_of(name)) for name in catalog.names("models")
}


def all_arms(argument: str) -> dict[str, dict[str, Any]]:
    """Return the arms of all models for the contract tests with this argument, e.g. `writing`."""
    return {
        f"{name}, {label}": raw
        for name, contract in MODELS.items()
        for label, raw in getattr(contract(), f"every_{argument}")().items()
    }


def build_arm(raw: dict[str, Any], *shape: Any) -> Any:
    """Build the model in float64, with halting that differs between tokens."""
    return MODELS[raw["name"]]().built(raw, *shape)
