"""Test models with a causal form: later tokens must not change the output for a token."""

from typing import Any, Final

import torch
from torch import Tensor, nn

from trainables.assembly import model_config
from trainables.layers.dropout import set_dropout_context
from trainables.layers.global_generator import global_stream
from trainables.testing.arms import Raw, with_fields
from trainables.testing.cases import ModelCases, enliven
from trainables.testing.contract import check, check_close

ROWS, LENGTH = 3, 9
PREFIX_LENGTHS: Final = (1, 4, 8)
"""Lengths in tokens of the compared prefixes."""
HALTING_FACTOR = 3.0
"""Factor for halting weights, because means over short sequences differ little."""


class CausalContract(ModelCases):
    """Tests each arm of a model with a field or property `causal` in its causal form.

    The encoding of a prefix may depend on the full length of the sequence, although not on later tokens. The
    `Config` of such a model has a property `given_length` that is true.
    """

    def test_no_output_depends_on_a_later_token(self, causal: Raw) -> None:
        """Check that outputs ignore later tokens, also in training with constant dropout masks."""
        prefix_length = LENGTH // 2
        for dropout in (0.0, 0.2):
            model, outputs = (
                self._build_causal(with_fields(causal, dropout=dropout, attention_dropout=dropout)),
                [],
            )
            x, mask = inputs(model)
            for later_vectors in (x[:, prefix_length:], inputs(model, seed=1)[0][:, prefix_length:] * 5):
                set_dropout_context(model.train(dropout > 0), seed=2, step=0)
                with global_stream(2):  # the mask of plain dropout for the full model
                    encoded = model.encoder(torch.cat((x[:, :prefix_length], later_vectors), 1), mask)
                outputs.append(encoded.states[:, :prefix_length])
            requirement = (
                f"states of the first {prefix_length} tokens must not depend on later ones, {dropout=}"
            )
            check_close(outputs[0], outputs[1], requirement)

    def test_no_gradient_reaches_a_later_token(self, causal: Raw) -> None:
        """Check the gradient of the states of the first half, which must reach only the first half."""
        model, half = self._build_causal(causal), LENGTH // 2
        x, mask = inputs(model)
        x.requires_grad_()
        (gradient,) = torch.autograd.grad(model.encoder(x, mask).states[:, :half].sum(), x)
        positions_reached = gradient.abs().sum((0, 2)).nonzero().flatten().tolist()
        check(positions_reached, "states must depend on what they encode, got no gradient at all")
        check(
            max(positions_reached) < half,
            f"the first {half} states must depend on these tokens, got {positions_reached}",
        )

    def test_causal_encoder_ignores_later_tokens(self, causal: Raw) -> None:
        """Check that a prefix is encoded alike with and without the rest of its sequence."""
        if getattr(model_config(causal), "given_length", False):
            return
        model = self._build_causal(causal)
        x, mask = inputs(model)
        all_states = model.encoder(x, mask).states
        for prefix_length in PREFIX_LENGTHS:
            states = model.encoder(x[:, :prefix_length], mask[:, :prefix_length]).states
            check_close(
                states,
                all_states[:, :prefix_length],
                f"the states of {prefix_length} tokens must not depend on the tokens after them",
            )

    def test_a_causal_model_has_no_start_and_end(self, causal: Raw) -> None:
        """Check that there is one state per token; an END would reveal that no token follows."""
        model = self._build_causal(causal)
        x, mask = inputs(model)
        actual_shape = tuple(model.encoder(x, mask).states.shape)
        check(
            actual_shape == x.shape,
            f"there must be a state for each of the tokens {tuple(x.shape)}, got {actual_shape}",
        )

    def _build_causal(self, raw: Raw) -> Any:
        model = self.built(raw).eval()
        enliven(model, HALTING_FACTOR)
        return model


def inputs(model: nn.Module, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Return random vectors of full rows, and their mask."""
    stream = torch.Generator().manual_seed(seed)
    width = model.embedding().shape[1]  # type: ignore[operator]
    x = torch.randn(ROWS, LENGTH, width, generator=stream, dtype=torch.float64)
    return x, torch.ones(ROWS, LENGTH, dtype=torch.bool)
