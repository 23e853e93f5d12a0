"""Universal Transformer (UT), Gated Universal Transformer (GUT) and every ablation between them.

Source: Ray Chowdhury and Caragea, Investigating Recurrent Transformers with Dynamic Halt: UT is Alg. 1, GUT
Alg. 3 with the gated block of Eq. 9-11 and the halting features of Eq. 12-17. One block and one halting
function are shared by all layers; there is no layer embedding.

Published systems as settings (settings that are not listed have their defaults, which are those of GUT):

    GUT                     {}
    GUT - Global Halt       halt: {unit: token}
    GUT - Gate              gate: false
    GUT - Transition        halt: {transition: false}
    GUT Upperbound          early_exit: none
    GUT No Halt Upperbound  halt: null
    UT                      gate: false, pooling: mean, halt: {unit: token, transition: false}
    UT - Halt               gate: false, pooling: mean, halt: null

Where the paper and its published runs differ, this model follows the runs:

* The sums begin at the embeddings, and the step that reaches the threshold is undone
  (`layers.halting` has the alternatives).
* Eq. 13 prints the halting probability one index too late.
* The last halting probability is never computed, so the ponder cost includes the remaining mass.
* Changing the halting unit from sequence to token also takes keys and values from the mixture instead of the
  states (`kv: states` isolates the first change, `kv: mixture` the second).

The published cap of padded length + 1 layers makes short inputs depend on their batch. Here the cap is a
sample's own length, START and END included, plus one.

In the causal form (App. A, flip-flop) there are no START and END, and tokens do not attend to later ones. The
global halt becomes one for each position: its features are means over the positions so far, while keys and
values still come from the states. Two departures from the published runs remain there:

* The mean over the next layer's states differs at halted positions. The published mean uses the layer's
  output for the final state, which is then discarded. This model uses the final state itself, so that the
  position can be removed from the batch. On copied weights outputs differ by 1e-4 to 2e-3.
  `halt: {halted_proposals: true}` with `early_exit: batch` computes the published mean.
* The published cap is the length + 1 here too. A position does not depend on its sequence's length, so only
  `max_layers` bounds its layers here. Results differ only on sequences of fewer than `max_layers` - 1 tokens.

The decoder is not in the paper. It is the causal form over the answer, with a final norm. Its one block has
cross-attention to the encoded input. Halting is that of the causal form, so that no token's depth
depends on later tokens. Keys and values of the input are computed once.
"""

from dataclasses import replace
from typing import Final, Literal

from jaxtyping import Bool, Float
from torch import Tensor, nn

from trainables.layers.block import Block
from trainables.layers.block_costs import (
    block_activation_bytes,
    block_flops,
    cross_attention_layer_bytes,
    cross_attention_layer_flops,
    project_kv_flops,
)
from trainables.layers.boundaries import PooledSettings, boundaries, positions
from trainables.layers.linear import LayerNorm
from trainables.layers.packing import pack
from trainables.layers.tokens import KeysValues, Tokens
from trainables.models._universal import (
    UniversalSettings,
    depth_recurrence,
    halting_activation_bytes,
    halting_flops,
    halting_function,
    most_recurrent_layers,
    recurrent_depth_range,
    run_to_halt,
    states_between_layers,
)
from trainables.recurrence.decoding_state import DecodingState, StepwiseDecoder
from trainables.recurrence.result import decoder_output
from trainables.recurrence.stepwise import extend_by_one_token
from trainables.settings import AnswerSettings
from trainables.types import Encoded

GRAPHED: Final = True
"""Whether training steps can be captured as CUDA graphs (`training.graphed`)."""


class Config(UniversalSettings, PooledSettings, AnswerSettings):
    """Settings of the universal family."""

    name: Literal["universal"] = "universal"
    """The model's name."""


class Encoder(nn.Module):
    """Encoder that repeats one block until every unit has halted."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.boundaries = boundaries(config.width, present=not config.causal)
        self.block = Block(config, config.size_of_gate)
        self.halt = halting_function(config)

    def forward(self, x: Float[Tensor, "N S D"], mask: Bool[Tensor, "N S"]) -> Encoded:
        """Encode right-padded `x`, (batch, length, width); `mask` is True at tokens."""
        states, packing = self.boundaries(x, mask)
        tokens = Tokens.of(packing, self.config.size_of_head, states.dtype, causal=self.config.causal)
        result = run_to_halt(self.config, self.block, self.halt, states, tokens)
        pooling, bound = self.config.pooling, self.config.max_layers
        return result.encoded(self.boundaries, packing, x, pooling=pooling, bound=bound)


class Decoder(StepwiseDecoder):
    """Decoder that repeats one block on an answer until every token has halted."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.num_layers = config.max_layers
        self.config = config.model_copy(update={"causal": True})
        self.block = Block(config, config.size_of_gate, has_cross_attention=True)
        self.halt = halting_function(config)
        self.final_norm = LayerNorm(config.width)

    def forward(
        self,
        y: Float[Tensor, "N T D"],
        y_mask: Bool[Tensor, "N T"],
        memory: Float[Tensor, "N P D"],
        memory_mask: Bool[Tensor, "N P"],
    ) -> Encoded:
        """Return states of answers; each token attends to itself, earlier tokens and all of `memory`.

        Args:
            y: Right-padded embedded answers, (batch, answer length, width).
            y_mask: True at tokens of the answers.
            memory: Encoded inputs, (batch, positions, width).
            memory_mask: True at valid positions of the inputs.
        """
        states, packing = pack(y, y_mask)
        tokens = replace(
            Tokens.of(packing, self.config.size_of_head, states.dtype, causal=True),
            cross_kv=self.cross_kv(memory, memory_mask)[0],
        )
        result = run_to_halt(self.config, self.block, self.halt, states, tokens)
        result = replace(result, states=self.final_norm(result.states))
        return decoder_output(result, packing, y, self.config.max_layers)

    def extend(
        self, y: Float[Tensor, "R D"], decoding: DecodingState
    ) -> tuple[Float[Tensor, "R D"], DecodingState]:
        """Return the state of one more token in each answer, as in `forward`, and the new decoding state."""
        tokens = decoding.tokens(self.config.size_of_head, y)
        states, decoding = extend_by_one_token(
            self.block, depth_recurrence(self.config, self.block, self.halt), y, tokens, decoding
        )
        return self.final_norm(states), decoding

    def cross_kv(self, memory: Float[Tensor, "N P D"], memory_mask: Bool[Tensor, "N P"]) -> list[KeysValues]:
        """Return keys and values of the inputs for all layers."""
        assert self.block.recall is not None
        return [self.block.recall.project_kv(*pack(memory, memory_mask))]


memory_length = positions
states_between = states_between_layers


def depth_range(config: Config, length: int) -> tuple[int, int]:  # noqa: ARG001 the same for all lengths
    """Return the minimum and maximum number of layers run on a sequence, including an undone step."""
    return recurrent_depth_range(config)


def most_layers(config: Config, length: int) -> int:
    """Return the maximum number of layers run on a sequence of `length` tokens."""
    return most_recurrent_layers(config, positions(config, length))


def forward_flops(config: Config, length: int, layers: int) -> float:
    """Return the encoder FLOPs of one sequence of `length` tokens on which `layers` layers are run."""
    tokens = positions(config, length)
    flops = layers * block_flops(config, config.size_of_gate, tokens)
    return flops + halting_flops(config, tokens, layers)


def activation_bytes(config: Config, rows: int, length: int) -> float:
    """Return the activation bytes that a forward pass keeps for the backward pass if nothing halts early.

    Args:
        config: Settings of the model.
        rows: Number of sequences.
        length: Number of tokens of each sequence.
    """
    tokens = positions(config, length)
    layer = block_activation_bytes(config, config.size_of_gate, rows, tokens)
    return config.max_layers * (layer + halting_activation_bytes(config, rows, tokens))


def decoder_flops(config: Config, length: int, memory_length: int, layers: int) -> float:
    """Return the decoder FLOPs of an answer of `length` tokens on which `layers` layers are run."""
    flops = layers * cross_attention_layer_flops(config, config.size_of_gate, length, memory_length)
    halting = halting_flops(config.model_copy(update={"causal": True}), length, layers)
    return project_kv_flops(config, memory_length) + flops + halting


def decoder_activation_bytes(config: Config, rows: int, length: int, memory_length: int) -> float:
    """Return the activation bytes that the decoder keeps for `rows` answers of `length` tokens."""
    layer = cross_attention_layer_bytes(config, config.size_of_gate, rows, length, memory_length)
    halting = halting_activation_bytes(config.model_copy(update={"causal": True}), rows, length)
    return config.max_layers * (layer + halting)
