"""What a block costs, by arithmetic on its sizes.

FLOPs count two for each multiply-add of a matrix product and nothing else, the convention of
`torch.utils.flop_counter`. Bytes count what autograd keeps for the backward pass, in 32 bits.
"""

from trainables.layers.block import BlockSettings

FLOAT_BYTES = 4


def linear_flops(rows: int, inputs: int, outputs: int) -> float:
    """A linear map of `rows` vectors."""
    return 2.0 * rows * inputs * outputs


def block_flops(config: BlockSettings, gate_width: int | None, tokens: int) -> float:
    """One block on one sequence of `tokens` positions, START and END included."""
    inner = config.heads * config.size_of_head
    projections = 4 * linear_flops(tokens, config.width, inner)
    products = 2 * linear_flops(tokens, inner, tokens)
    hidden = config.size_of_feedforward + (gate_width or 0)
    return projections + products + 2 * linear_flops(tokens, config.width, hidden)


def block_saved_bytes(config: BlockSettings, gate_width: int | None, rows: int, tokens: int) -> float:
    """What one run of a block on `rows` sequences of `tokens` positions keeps for the backward pass.

    A position keeps its state, two norms of it, the attended state and its norm (5 width); queries and keys
    before and after turning, values and what attention returns (6 heads * head_width); two copies of each
    hidden layer; three widths more for a gate; and one byte for each element a dropout may take. Attention
    weights are kept, twice and with a byte each, only where they have dropout or no fused kernel.
    """
    inner = config.heads * config.size_of_head
    hidden = config.size_of_feedforward + (gate_width or 0)
    floats = 5 * config.width + 6 * inner + 2 * hidden + (3 * config.width if gate_width else 0)
    masks = (3 if gate_width else 2) * config.width + hidden if config.dropout else 0
    weights = 0.0
    if config.attention_dropout or config.attention == "math":
        weights = config.heads * tokens * (2.0 * FLOAT_BYTES + bool(config.attention_dropout))
    return rows * tokens * (FLOAT_BYTES * floats + masks + weights)
