"""Test encoders: shapes, padding, gradients, and randomness that depends only on the seed."""

import torch

from trainables import costs
from trainables.assembly import build_model, find_unseeded_tensors, model_config
from trainables.layers.dropout import set_dropout_context
from trainables.testing.arms import Raw, with_fields
from trainables.testing.cases import (
    LENGTHS,
    SEED,
    SHAPE,
    ModelCases,
    batch,
    check_bounds,
    check_same,
    embed_tokens,
    run_training_pass,
)
from trainables.testing.contract import check, check_close

WIDER = 14
"""Width in tokens to which a batch with shorter rows is padded."""
LOSS_TOLERANCE_16_BIT = 0.1
"""Relative and absolute tolerance of a loss in 16 bits."""
NO_KERNEL = "could not create a primitive"
"""Part of oneDNN's error message on a processor without the needed instructions, as for LSTMs in 16 bits."""


class EncoderContract(ModelCases):
    """Tests the settings, the built model, and one forward and backward pass of each arm."""

    def test_settings_survive_a_round_trip(self, arm: Raw) -> None:
        """Check a round trip through JSON, the format of stored plans."""
        config = model_config(arm)
        parsed_again = model_config(config.model_dump(mode="json"))
        check(
            parsed_again == config,
            f"settings written as JSON must be read as they were: {config!r}, {parsed_again!r}",
        )

    def test_outputs_have_declared_shapes_and_bounds(self, arm: Raw) -> None:
        """Check `trainables.types.Encoded`; depth and work must have no gradient."""
        model = self.built(arm).eval()
        inputs = batch()
        encoded = model.encoder(embed_tokens(model, inputs), inputs.mask)
        rows, width = len(LENGTHS), vars(model_config(arm))["width"]
        pooled, states = tuple(encoded.pooled.shape), tuple(encoded.states.shape)
        check(pooled == (rows, width), f"pooled must be of shape {(rows, width)}, got {pooled}")
        has_shape = len(states) == 3 and (states[0], states[2]) == (rows, width)
        check(has_shape, f"states must be of shape ({rows}, positions, {width}), got {states}")
        check_bounds(encoded)
        loss = model(inputs).loss
        check(loss.isfinite().all(), f"the loss must be finite, got {loss}")

    def test_padding_never_leaks(self, arm: Raw) -> None:
        """Check that neither content nor amount of padding changes any other value."""
        model = self.built(arm).eval()
        samples, wider_samples = batch(), batch(width=WIDER)
        x = embed_tokens(model, samples)
        expected_output = model.encoder(x, samples.mask)
        noisy_output = model.encoder(torch.where(samples.mask[..., None], x, x + 100), samples.mask)
        wide_output = model.encoder(embed_tokens(model, wider_samples), wider_samples.mask)
        columns = expected_output.states.shape[1]
        # States of padding are never used. Only a model with additional positions can identify its padding.
        read_mask = (
            samples.mask if columns == samples.mask.shape[1] else samples.mask.new_ones(len(LENGTHS), columns)
        )
        for actual, subject in (
            (noisy_output, "vectors of padding must not affect outputs: where mask is false, x is not zero"),
            (wide_output, "more padding must not affect outputs"),
        ):
            check_close(
                actual.states[:, :columns][read_mask], expected_output.states[read_mask], f"{subject}: states"
            )
            check_same(actual, expected_output, subject, without=("states",))

    def test_a_sample_does_not_depend_on_its_batch(self, arm: Raw) -> None:
        """Check that each row gives equal results alone and in a batch."""
        model, samples = self.built(arm).eval(), batch()
        x = embed_tokens(model, samples)
        batch_output = model.encoder(x, samples.mask)
        for row in range(len(LENGTHS)):
            single_output = model.encoder(x[row : row + 1], samples.mask[row : row + 1])
            for name in ("pooled", "depth", "ponder"):
                alone_value, batch_value = (
                    getattr(single_output, name),
                    getattr(batch_output, name)[row : row + 1],
                )
                check_close(
                    alone_value, batch_value, f"row {row} must be encoded alone as in its batch: {name}"
                )

    def test_every_parameter_gets_a_gradient(self, arm: Raw) -> None:
        """Check that no gradient is missing or zero, since such a parameter would never be trained."""
        model = self.built(with_fields(arm, dropout=0.1, attention_dropout=0.1))
        _, gradients = run_training_pass(model, batch([*LENGTHS, 7]))
        parameters_without_gradient = [name for name, _ in model.named_parameters() if name not in gradients]
        zero_names = [name for name, gradient in gradients.items() if not gradient.any()]
        check(
            not parameters_without_gradient,
            f"every parameter must get a gradient, got none for {', '.join(parameters_without_gradient)}",
        )
        check(
            not zero_names,
            f"every parameter must get a gradient, got zeros alone for {', '.join(zero_names)}",
        )

    def test_dropout_is_a_function_of_seed_and_step(self, arm: Raw) -> None:
        """Check that dropout is repeatable, so that resumed trials and paired arms use equal masks."""
        model, samples = (
            self.built(with_fields(arm, dropout=0.2, attention_dropout=0.2)).train(),
            batch([5, 1, 9]),
        )
        losses = []
        for step in (1, 2, 1):
            set_dropout_context(model, SEED, step)
            losses.append(model(samples).loss.detach())
        first_loss, other_loss, repeated_loss = losses
        check(
            torch.equal(first_loss, repeated_loss),
            f"a repeated step must use the same dropout masks, got losses {first_loss}, {repeated_loss}",
        )
        check(
            not torch.equal(first_loss, other_loss),
            f"different steps must use different dropout masks, got the losses {first_loss} twice",
        )

    def test_building_is_a_function_of_the_seed_alone(self, arm: Raw) -> None:
        """Check that building neither reads nor advances a global generator."""
        random_state = torch.random.get_rng_state()
        first_weights, same_seed_weights, other_weights = (
            build_model(arm, SHAPE, seed).state_dict() for seed in (1, 1, 2)
        )
        check(
            torch.equal(random_state, torch.random.get_rng_state()), "torch's generator must stay as it was"
        )
        random_names = [
            name for name in first_weights if not torch.equal(first_weights[name], same_seed_weights[name])
        ]
        check(
            not random_names,
            f"a seed must always give the same weights, got others for {', '.join(random_names)}",
        )
        differs = any(not torch.equal(first_weights[name], other_weights[name]) for name in first_weights)
        check(differs, "another seed must give other weights, got the same")
        constructed = find_unseeded_tensors(model_config(arm), SHAPE)
        check(
            not constructed,
            "constructors must not draw weights; draw them in reset_parameters of their module, got "
            f"{', '.join(constructed)} from a constructor",
        )

    def test_arms_share_initial_weights_of_common_modules(self, arm: Raw) -> None:
        """Check that modules shared with the small version have equal initial weights for the same seed."""
        small_modules = dict(build_model(self.every_arm()["small"], SHAPE, SEED).named_modules())
        modules = dict(build_model(arm, SHAPE, SEED).named_modules())
        shared_names = [
            name
            for name in modules.keys() & small_modules.keys()
            if _module_kind(modules[name]) == _module_kind(small_modules[name])
        ]
        check(shared_names, "an arm must keep a module of the small version, got none that is the same")
        for name in shared_names:
            for parameter, small_parameter in zip(
                _parameters(modules[name]), _parameters(small_modules[name]), strict=True
            ):
                check(
                    torch.equal(parameter, small_parameter),
                    f"initial weights of {name} must equal those of the small version",
                )

    def test_meta_model_has_equal_parameters_and_no_storage(self, arm: Raw) -> None:
        """Check that a plan can build every arm without memory."""
        real_model, meta_model = (build_model(arm, SHAPE, SEED, device=device) for device in ("cpu", "meta"))
        shapes, meta_shapes = (
            {name: p.shape for name, p in built_model.named_parameters()}
            for built_model in (real_model, meta_model)
        )
        check(
            shapes == meta_shapes,
            f"names and shapes of parameters on the meta device must equal those on the CPU, got "
            f"{meta_shapes} on the meta device and {shapes} on the CPU",
        )
        check(
            all(p.is_meta for p in meta_model.parameters()), "a model on the device meta must have no storage"
        )

    def test_sums_stay_in_32_bits_under_autocast(self, arm: Raw) -> None:
        """Check that losses and costs are not 16-bit numbers and are close to those in 32 bits."""
        model = build_model(arm, SHAPE, SEED).eval()
        try:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                output = model(batch())
        except RuntimeError as error:
            if NO_KERNEL not in str(error):
                raise
            import pytest  # import here, because users of contracts without tests may lack pytest

            pytest.skip("this processor cannot run it in 16 bits")
        for name, value in {"loss": output.loss, "ponder": output.encoded.ponder}.items():
            check(value.dtype == torch.float32, f"{name} must be float32 under autocast, got {value.dtype}")
        exact = model(batch()).loss
        torch.testing.assert_close(output.loss, exact, rtol=LOSS_TOLERANCE_16_BIT, atol=LOSS_TOLERANCE_16_BIT)

    def test_depth_is_within_the_range_of_its_cost_formula(self, arm: Raw) -> None:
        """Check against `depth_range` of the model's file, or against the counted range if it has none."""
        config = model_config(arm)
        layers_computed = self.built(arm).eval()(batch()).encoded.computed
        for length, layers in zip(LENGTHS, layers_computed.tolist(), strict=True):
            fewest_layers, most_layers = costs.depth_range(config, length)
            message = (
                f"layers run on {length} tokens must be from {fewest_layers} to {most_layers}, got {layers}"
            )
            check(fewest_layers <= layers <= most_layers, message)


def _module_kind(module: torch.nn.Module) -> tuple[object, ...]:
    """Return class, sizes and constants of a module; modules of two arms are the same if these are equal."""
    constants = {name: value for name, value in vars(module).items() if isinstance(value, int | float | str)}
    return (
        type(module),
        tuple(parameter.shape for parameter in _parameters(module)),
        tuple(sorted(constants.items())),
    )


def _parameters(module: torch.nn.Module) -> list[torch.nn.Parameter]:
    """Return the parameters of `module` itself, not those of its children."""
    return list(module.parameters(recurse=False))
