"""Test models with cost formulas: the formulas must agree with the costs counted in a run."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from trainables import catalog, costs
from trainables.assembly import model_config
from trainables.counting import measure_cost
from trainables.settings import ModelSettings
from trainables.testing.arms import EXIT, Raw, with_fields
from trainables.testing.cases import SHAPE, ModelCases
from trainables.testing.contract import check

LENGTH, ANSWER = 19, 13
"""Lengths of the counted run; odd, so that chunks have different lengths."""
FACTOR: Final = 1.6
"""Allowed factor between estimated and counted memory; small models deviate most, especially for
one input.
"""


class CostContract(ModelCases):
    """Tests each arm without early exit, because with early exit the work depends on weights.

    For a model without formulas costs are counted and not compared.
    """

    none: ClassVar[Mapping[str, str]] = {
        **ModelCases.none,
        "stating": "no function forward_flops: costs are counted",
        "keeping": "no function activation_bytes: memory is counted",
        "deciding": "no function decoder_flops: it has no decoder, or its costs are counted",
    }

    def every_stating(self) -> dict[str, Raw]:
        """Return all arms if the model has a formula for FLOPs (`forward_flops`); otherwise no arm."""
        return self._stating("forward_flops")

    def every_keeping(self) -> dict[str, Raw]:
        """Return all arms if the model has a formula for memory (`activation_bytes`); otherwise no arm."""
        return self._stating("activation_bytes")

    def every_deciding(self) -> dict[str, Raw]:
        """Return all arms if the model has formulas for its decoder's costs; otherwise no arm."""
        return self._stating("decoder_flops")

    def test_flop_formulas_match_counted_flops(self, stating: Raw) -> None:
        """Check the FLOPs of an encoder on one input exactly."""
        config = _config(stating)
        cost = measure_cost(config, "Encoder", LENGTH)
        stated = self._function("forward_flops")(config, LENGTH, round(cost.computed))
        check(stated == cost.flops, f"forward_flops must be {cost.flops:,.0f}, got {stated:,.0f}")

    def test_memory_formulas_approximate_counted_memory(self, keeping: Raw) -> None:
        """Check the memory of an encoder on one input within `FACTOR`."""
        config = _config(keeping)
        stored_bytes = measure_cost(config, "Encoder", LENGTH).activation_bytes
        _check_memory(self._function("activation_bytes")(config, 1, LENGTH), stored_bytes)

    def test_decoder_cost_formulas_match_counted_costs(self, deciding: Raw) -> None:
        """Check FLOPs of a decoder exactly and its memory within `FACTOR`."""
        config = _config(deciding)
        cost = measure_cost(config, "Decoder", ANSWER, LENGTH)
        stated = self._function("decoder_flops")(config, ANSWER, LENGTH, round(cost.computed))
        check(stated == cost.flops, f"decoder_flops must be {cost.flops:,.0f}, got {stated:,.0f}")
        _check_memory(
            self._function("decoder_activation_bytes")(config, 1, ANSWER, LENGTH), cost.activation_bytes
        )

    def test_flops_grow_with_length_and_layers(self, arm: Raw) -> None:
        """Check that FLOPs increase with the length and do not decrease with the number of layers."""
        config = model_config(arm)
        fewest_layers, most_layers = costs.depth_range(config, 10)
        base_cost, longer_cost, cost_of_fewer_layers = (
            costs.flops(config, SHAPE, length, layers)
            for length, layers in ((10, most_layers), (11, most_layers), (10, fewest_layers))
        )
        grows = base_cost < longer_cost
        check(grows, f"FLOPs must grow with the length, got {base_cost:,.0f} at 10, {longer_cost:,.0f} at 11")
        grows = cost_of_fewer_layers <= base_cost
        check(
            grows,
            f"FLOPs must grow with layers, got {cost_of_fewer_layers:,.0f} at {fewest_layers}, "
            f"{base_cost:,.0f} at {most_layers}",
        )

    def _stating(self, function: str) -> dict[str, Raw]:
        if not hasattr(catalog.load("models", self.model), function):
            return {}
        return {label: with_fields(raw, **{EXIT: "none"}) for label, raw in self.every_arm().items()}

    def _function(self, name: str) -> Callable[..., Any]:
        formula: Callable[..., Any] = getattr(catalog.load("models", self.model), name)
        return formula


def _config(raw: Raw) -> ModelSettings:
    config = model_config(raw)
    assert isinstance(config, ModelSettings)
    return config


def _check_memory(stated: float, tolerance: float) -> None:
    message = f"the memory formula must be right within a factor of {FACTOR}"
    is_close = 1 / FACTOR < stated / tolerance < FACTOR
    check(is_close, f"{message}, got {stated:,.0f} bytes, but {tolerance:,.0f} are allocated")
