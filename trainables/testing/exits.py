"""Test models with early exit: skipping the work of halted units must not change any result."""

from typing import Any, Final, get_args

import torch
from pydantic import ValidationError

from trainables.assembly import model_config
from trainables.settings import Settings
from trainables.testing.arms import EXIT, Raw, with_fields
from trainables.testing.cases import ModelCases, batch, check_same, run_training_pass
from trainables.testing.contract import check, check_close

LENGTHS: Final = (5, 1, 9, 3, 7)
DROPOUT_RATES: Final = {"dropout": 0.2, "attention_dropout": 0.1}


class EarlyExitContract(ModelCases):
    """Tests each arm of a model with a field `early_exit`, whose default must be the mode that saves most.

    Modes are the values of its `Literal` except `auto`. The mode `none` runs all layers.
    """

    def test_early_exit_changes_no_result_and_no_gradient(self, exiting: Raw) -> None:
        """Check in training with dropout that outputs, costs and gradients equal those of `none`."""
        modes = [mode for mode in modes_of(model_config(exiting)) if mode != "none"]
        full_output, gradients = run_training_pass(self._build_exiting(exiting, "none"), batch(LENGTHS))
        for mode in modes:
            output, exit_gradients = run_training_pass(self._build_exiting(exiting, mode), batch(LENGTHS))
            requirement = f"{EXIT}: {mode} must change no result"
            check_close(output.loss, full_output.loss, f"{requirement}: loss")
            check_same(output.encoded, full_output.encoded, requirement, without=("computed",))
            runs_no_more_layers = (output.encoded.computed <= full_output.encoded.computed + 1e-9).all()
            check(runs_no_more_layers, f"{EXIT}: {mode} must run no more layers than none")
            check(exit_gradients.keys() <= gradients.keys(), f"{requirement}: parameters with a gradient")
            for name, gradient in gradients.items():
                # A weight that no active unit used has no gradient at all.
                exit_gradient = exit_gradients.get(name, torch.zeros_like(gradient))
                check_close(exit_gradient, gradient, f"{requirement}: gradient of {name}")

    def test_no_layer_runs_for_halted_units(self, exiting: Raw) -> None:
        """Check that a unit runs at most one layer more than it keeps, in the mode that saves most.

        Arms that do not support all modes are skipped.
        """
        config = model_config(exiting)
        if modes_of(config) != _all_modes(config):
            return
        encoded = self.built(exiting).eval()(batch((5, 1, 9, 3, 8, 2))).encoded
        surplus = float((encoded.computed - encoded.depth).max())
        check(surplus <= 1, f"at most one layer may be discarded, got {surplus} of {encoded.computed}")

    def _build_exiting(self, raw: Raw, mode: str) -> Any:
        return self.built(with_fields(raw, **{EXIT: mode}, **DROPOUT_RATES))


def modes_of(config: Settings) -> tuple[str, ...]:
    """Return the allowed values of the field `early_exit` except `auto`; empty if there is no such field."""
    return tuple(mode for mode in _all_modes(config) if _is_possible(config, mode))


def _all_modes(config: Settings) -> tuple[str, ...]:
    field = type(config).model_fields.get(EXIT)
    return () if field is None else tuple(mode for mode in get_args(field.annotation) if mode != "auto")


def _is_possible(config: Settings, mode: str) -> bool:
    try:
        type(config).model_validate(config.model_dump() | {EXIT: mode})
    except ValidationError:
        return False
    return True
