"""Test decoders, which generate an answer token by token from an encoded input."""

from typing import Any, Final

import torch
from torch import Tensor, nn

from trainables.assembly import model_config
from trainables.data.synthetic import synthetic_batch
from trainables.layers.dropout import set_dropout_context
from trainables.layers.global_generator import global_stream
from trainables.testing.arms import EXIT, Raw, with_fields
from trainables.testing.cases import ModelCases, check_bounds, run_training_pass
from trainables.testing.contract import check, check_close
from trainables.testing.exits import modes_of
from trainables.types import Batch, Encoded, TaskShape

ANSWER_SHAPE = TaskShape(
    "sequence", vocabulary_size=9, num_classes=7, pad_id=8, length_max=9, end_id=6, answer_length_max=8
)
TIED_SHAPE = TaskShape(
    "sequence", 9, 9, pad_id=8, length_max=9, end_id=6, answer_length_max=8, shared_vocabulary=True
)
ROWS, LENGTH, SOURCES = 3, 8, 6
LENGTHS, SOURCE_LENGTHS = (5, 8, 2), (6, 1, 4)
DROPOUT_RATES: Final = {"dropout": 0.2, "attention_dropout": 0.2}
Answers = tuple[Tensor, Tensor, Tensor, Tensor]


class DecoderContract(ModelCases):
    """Tests each arm of a model with a class `Decoder`."""

    def test_answers_have_declared_shapes_and_bounds(self, writing: Raw) -> None:
        """Check one state per token, pooling of the last state, and depth and work without gradients."""
        model = self._build_writer(writing).eval()
        y, y_mask, memory, memory_mask = answers(_width(model))
        encoded: Encoded = model.decoder(y, y_mask, memory, memory_mask)
        check(
            encoded.states.shape == y.shape, f"states must be of shape {y.shape}, got {encoded.states.shape}"
        )
        last_states = encoded.states[torch.arange(ROWS), torch.tensor(LENGTHS) - 1]
        check(
            torch.equal(encoded.pooled, last_states),
            "pooled must be the state of the last token of each answer",
        )
        check_bounds(encoded)

    def test_no_answer_depends_on_a_later_token(self, writing: Raw) -> None:
        """Check that answers ignore later tokens, also in training with constant dropout masks."""
        model = self._build_writer(with_fields(writing, **DROPOUT_RATES))
        y, y_mask, memory, memory_mask = unpadded_answers(_width(model))
        later_answers, outputs = unpadded_answers(_width(model), seed=1)[0] * 5, {}
        for num_seen in (1, 5, LENGTH):
            set_dropout_context(model.train(), seed=2, step=0)
            with global_stream(2):  # the mask of plain dropout for the full model
                answers_changed_later = torch.cat((y[:, :num_seen], later_answers[:, num_seen:]), 1)
                outputs[num_seen] = model.decoder(answers_changed_later, y_mask, memory, memory_mask).states
        unchanged_states = outputs.pop(LENGTH)
        for num_seen, states in outputs.items():
            requirement = f"states of the first {num_seen} answer tokens must not depend on later ones"
            check_close(unchanged_states[:, :num_seen], states[:, :num_seen], requirement)

    def test_decoder_ignores_later_answer_tokens(self, writing: Raw) -> None:
        """Check that prefixes are independent of the rest, so that answers can be generated token by token.

        The depth of each token must be final when it is generated.
        """
        model = self._build_writer(writing).eval()
        y, y_mask, memory, memory_mask = unpadded_answers(_width(model))
        all_states = model.decoder(y, y_mask, memory, memory_mask)
        depth = torch.zeros(ROWS, dtype=all_states.depth.dtype)
        for num_seen in (1, 3, LENGTH):
            part = model.decoder(y[:, :num_seen], y_mask[:, :num_seen], memory, memory_mask)
            requirement = f"the states of {num_seen} tokens must not depend on the tokens after them"
            check_close(part.states, all_states.states[:, :num_seen], requirement)
            grows = (part.depth * num_seen - depth > -1e-4).all()
            check(
                grows, f"layers of written tokens must not change, got {depth}, then {part.depth * num_seen}"
            )
            depth = part.depth * num_seen
        check_close(depth / LENGTH, all_states.depth, "depth must be the mean over tokens")

    def test_every_answer_token_reads_the_whole_input_alone(self, writing: Raw) -> None:
        """Check that the first tokens of an answer read all input tokens, but no padding."""
        model = self._build_writer(writing).eval()
        y, y_mask, memory, memory_mask = answers(_width(model))
        memory.requires_grad_()
        for column in (0, 1):
            states = model.decoder(y, y_mask, memory, memory_mask).states[:, column]
            (gradient,) = torch.autograd.grad(states.square().sum(), memory)
            is_read = gradient.abs().sum(-1) > 0
            message = f"answer token {column} must read all of the input and no padding, got {is_read}"
            check(torch.equal(is_read, memory_mask), message)

    def test_padding_of_answers_and_inputs_never_leaks(self, writing: Raw) -> None:
        """Check that neither content nor amount of padding matters."""
        model = self._build_writer(writing).eval()
        y, y_mask, memory, memory_mask = answers(_width(model))
        expected_output = model.decoder(y, y_mask, memory, memory_mask)
        pad = nn.functional.pad
        variants = {
            "the content of padding": (
                torch.where(y_mask[..., None], y, y + 100),
                y_mask,
                torch.where(memory_mask[..., None], memory, memory + 100),
                memory_mask,
            ),
            "the amount of padding": (
                *(pad(y, (0, 0, 0, 3)), pad(y_mask, (0, 3))),
                *(pad(memory, (0, 0, 0, 2)), pad(memory_mask, (0, 2))),
            ),
        }
        for subject, inputs in variants.items():
            encoded = model.decoder(*inputs)
            message = f"{subject} must not matter"
            check_close(
                encoded.states[:, :LENGTH][y_mask], expected_output.states[y_mask], f"{message}: states"
            )
            for name in ("pooled", "depth", "ponder"):
                check_close(getattr(encoded, name), getattr(expected_output, name), f"{message}: {name}")

    def test_an_answer_does_not_depend_on_its_batch(self, writing: Raw) -> None:
        """Check that each row gives equal results alone and in a batch."""
        model = self._build_writer(writing).eval()
        inputs = answers(_width(model))
        batch_output = model.decoder(*inputs)
        for row, length in enumerate(LENGTHS):
            single_output = model.decoder(*(tensor[row : row + 1] for tensor in inputs))
            message = f"answer {row} must be written alone as in its batch"
            check_close(
                single_output.states[0, :length], batch_output.states[row, :length], f"{message}: states"
            )
            check_close(single_output.ponder, batch_output.ponder[row : row + 1], f"{message}: ponder")

    def test_every_decoder_parameter_gets_a_gradient(self, writing: Raw) -> None:
        """Check with a separate readout and, if the model supports it, with tied embeddings."""
        for tied in (False, True):
            raw = with_fields(writing, dropout=0.1, attention_dropout=0.1, tied_output=tied)
            is_tied = getattr(model_config(raw), "tied_output", False)
            model = self._build_writer(raw, TIED_SHAPE if is_tied else ANSWER_SHAPE)
            _, gradients = run_training_pass(model, examples(model))
            zero_names = [
                name
                for name, _ in model.named_parameters()
                if name not in gradients or not gradients[name].any()
            ]
            message = (
                f"every parameter must get a gradient with {tied=}, got none for {', '.join(zero_names)}"
            )
            check(not zero_names, message)

    def test_early_exit_changes_no_answer(self, writing: Raw) -> None:
        """Check in training with dropout that losses, costs and gradients equal those of the mode `none`."""
        results = {}
        for mode in modes_of(model_config(writing)):
            model = self._build_writer(with_fields(writing, **{EXIT: mode}, **DROPOUT_RATES))
            results[mode] = run_training_pass(model, examples(model))
        if not results:
            return
        full_output, gradients = results.pop("none")
        for mode, (output, exit_gradients) in results.items():
            requirement = f"{EXIT}: {mode} must change no"
            check_close(output.loss, full_output.loss, f"{requirement} loss")
            check_close(output.encoded.ponder, full_output.encoded.ponder, f"{requirement} cost")
            for name, gradient in gradients.items():
                check_close(
                    exit_gradients.get(name, torch.zeros_like(gradient)),
                    gradient,
                    f"{requirement} gradient: {name}",
                )

    def _build_writer(self, raw: Raw, shape: TaskShape = ANSWER_SHAPE) -> Any:
        return self.built(raw, shape)


def answers(width: int, seed: int = 0) -> Answers:
    """Return random vectors of answers, their mask, random states of inputs, and their mask; with padding."""
    y, _, memory, _ = unpadded_answers(width, seed)
    y_mask = torch.arange(LENGTH) < torch.tensor(LENGTHS)[:, None]
    return y, y_mask, memory, torch.arange(SOURCES) < torch.tensor(SOURCE_LENGTHS)[:, None]


def unpadded_answers(width: int, seed: int = 0) -> Answers:
    """Return random vectors of answers, their mask, random states of inputs, and their mask; no padding."""
    stream = torch.Generator().manual_seed(seed)
    y = torch.randn(ROWS, LENGTH, width, generator=stream, dtype=torch.float64)
    memory = torch.randn(ROWS, SOURCES, width, generator=stream, dtype=torch.float64)
    masks = (torch.ones(ROWS, length, dtype=torch.bool) for length in (LENGTH, SOURCES))
    y_mask, memory_mask = masks
    return y, y_mask, memory, memory_mask


def examples(model: nn.Module) -> Batch:
    """Return random inputs with answers."""
    return synthetic_batch(model.shape, 5, 9, seed=1)  # type: ignore[arg-type]


def _width(model: nn.Module) -> int:
    return int(model.embedding().shape[1])  # type: ignore[operator]
