"""Test models with cost formulas: the formulas must agree with the costs counted in a run."""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

from trainables import catalog, costs
from trainables.assembly import model_config
from trainables.counting import measure_cost
from trainables.settings import ModelSettings
from trainables.testing.arms import EXIT, Raw, having
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
        """Return the arms of a model that states its FLOPs."""
        return self._stating("forward_flops")

    def every_keeping(self) -> dict[str, Raw]:
        """Return the arms of a model that states its bytes stored for the backward pass."""
        return self._stating("activation_bytes")

    def every_deciding(self) -> dict[str, Raw]:
        """Return the arms of a model that states the costs of its decoder."""
        return self._stating("decoder_flops")

    def test_flops_are_what_is_counted(self, stating: Raw) -> None:
        """Check the FLOPs of an encoder on one input exactly."""
        config = _config(stating)
        found = measure_cost(config, "Encoder", LENGTH)
        stated = self._function("forward_flops")(config, LENGTH, round(found.computed))
        check(stated == found.flops, f"forward_flops must be {found.flops:,.0f}, got {stated:,.0f}")

    def test_memory_is_about_what_is_counted(self, keeping: Raw) -> None:
        """Check the memory of an encoder on one input within `FACTOR`."""
        config = _config(keeping)
        kept = measure_cost(config, "Encoder", LENGTH).activation_bytes
        _check_memory(self._function("activation_bytes")(config, 1, LENGTH), kept)

    def test_costs_of_a_decoder_are_what_is_counted(self, deciding: Raw) -> None:
        """Check FLOPs of a decoder exactly and its memory within `FACTOR`."""
        config = _config(deciding)
        found = measure_cost(config, "Decoder", ANSWER, LENGTH)
        stated = self._function("decoder_flops")(config, ANSWER, LENGTH, round(found.computed))
        check(stated == found.flops, f"decoder_flops must be {found.flops:,.0f}, got {stated:,.0f}")
        _check_memory(
            self._function("decoder_activation_bytes")(config, 1, ANSWER, LENGTH), found.activation_bytes
        )

    def test_flops_grow_with_length_and_layers(self, arm: Raw) -> None:
        """Check stated or counted FLOPs."""
        config = model_config(arm)
        least, most = costs.depth_range(config, 10)
        here, longer, fewer = (
            costs.flops(config, SHAPE, length, layers)
            for length, layers in ((10, most), (11, most), (10, least))
        )
        grows = here < longer
        check(grows, f"FLOPs must grow with the length, got {here:,.0f} at 10, {longer:,.0f} at 11")
        grows = fewer <= here
        check(grows, f"FLOPs must grow with layers, got {fewer:,.0f} at {least}, {here:,.0f} at {most}")

    def _stating(self, function: str) -> dict[str, Raw]:
        if not hasattr(catalog.load("models", self.model), function):
            return {}
        return {label: having(raw, **{EXIT: "none"}) for label, raw in self.every_arm().items()}

    def _function(self, name: str) -> Callable[..., Any]:
        found: Callable[..., Any] = getattr(catalog.load("models", self.model), name)
        return found


def _config(raw: Raw) -> ModelSettings:
    config = model_config(raw)
    assert isinstance(config, ModelSettings)
    return config


def _check_memory(stated: float, tolerance: float) -> None:
    message = f"memory must be stated within a factor of {FACTOR}"
    within = 1 / FACTOR < stated / tolerance < FACTOR
    check(within, f"{message}, got {stated:,.0f} bytes where {tolerance:,.0f} are kept")
