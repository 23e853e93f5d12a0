"""Compute the FLOPs of a block, and the bytes that it keeps for the backward pass, from its sizes.

FLOPs count two for each multiply-add of a matrix product and nothing else, the convention of
`torch.utils.flop_counter`. Bytes count the tensors that autograd keeps for the backward pass, in 32 bits.
"""

from trainables.layers.block import BlockSettings

FLOAT_BYTES = 4


def linear_flops(rows: int, inputs: int, outputs: int) -> float:
    """Return the FLOPs of a linear map of `rows` vectors."""
    return 2.0 * rows * inputs * outputs


def block_flops(config: BlockSettings, gate_width: int | None, tokens: int) -> float:
    """Return the FLOPs of one block on one sequence of `tokens` positions, START and END included."""
    inner = config.heads * config.size_of_head
    projections = 4 * linear_flops(tokens, config.width, inner)
    products = 2 * linear_flops(tokens, inner, tokens)
    hidden_width = config.size_of_feedforward + (gate_width or 0)
    return projections + products + 2 * linear_flops(tokens, config.width, hidden_width)


def cross_attention_flops(config: BlockSettings, queries: int, sources: int) -> float:
    """Return the FLOPs of cross-attention of `queries` vectors to `sources` vectors.

    The projection of the sources to keys and values is not included.
    """
    inner = config.heads * config.size_of_head
    return 2 * linear_flops(queries, config.width, inner) + 2 * linear_flops(queries, inner, sources)


def project_kv_flops(config: BlockSettings, sources: int) -> float:
    """Return the FLOPs of the projection of `sources` vectors to keys and values."""
    return 2 * linear_flops(sources, config.width, config.heads * config.size_of_head)


def block_activation_bytes(config: BlockSettings, gate_width: int | None, rows: int, tokens: int) -> float:
    """Return the bytes that one run of a block keeps for the backward pass.

    A position keeps its state, two norms of it, the attended state and its norm (5 width); queries, keys and
    values as they are multiplied, and the output of attention (4 heads * head_width); two copies of each
    hidden layer; two widths more for a gate; and one byte for each element a dropout may drop. Attention
    weights are kept only without a fused kernel or with dropout, which adds a byte for each.

    Args:
        config: Sizes of the block.
        gate_width: Inner size of the gate; None without a gate.
        rows: Number of sequences.
        tokens: Number of positions of each sequence.
    """
    inner = config.heads * config.size_of_head
    hidden_width = config.size_of_feedforward + (gate_width or 0)
    floats = 5 * config.width + 4 * inner + 2 * hidden_width + (2 * config.width if gate_width else 0)
    masks = (3 if gate_width else 2) * config.width + hidden_width if config.dropout else 0
    return rows * tokens * (FLOAT_BYTES * floats + masks + _weight_bytes(config, tokens))


def cross_attention_activation_bytes(config: BlockSettings, rows: int, queries: int, sources: int) -> float:
    """Return the activation bytes that cross-attention keeps for the backward pass.

    A query keeps its state, two norms of it, its projection and the output of attention. A source keeps its
    state, a norm of it, its key and its value.

    Args:
        config: Sizes of the block.
        rows: Number of rows.
        queries: Number of queries of each row.
        sources: Number of sources of each row.
    """
    inner = config.heads * config.size_of_head
    query_bytes = FLOAT_BYTES * (3 * config.width + 2 * inner) + (config.width if config.dropout else 0)
    source_bytes = FLOAT_BYTES * (2 * config.width + 2 * inner)
    return rows * (queries * (query_bytes + _weight_bytes(config, sources)) + sources * source_bytes)


def _weight_bytes(config: BlockSettings, keys: int) -> float:
    """Return the bytes of one query's attention weights; 0 if the backward pass does not need them."""
    if not config.attention_dropout and config.attention != "math":
        return 0.0
    return float(config.heads * keys * (FLOAT_BYTES + bool(config.attention_dropout)))


def cross_attention_layer_flops(
    config: BlockSettings, gate_width: int | None, length: int, memory_length: int
) -> float:
    """Return the FLOPs of one block on an answer of `length` tokens attending to `memory_length` states."""
    return block_flops(config, gate_width, length) + cross_attention_flops(config, length, memory_length)


def cross_attention_layer_bytes(
    config: BlockSettings, gate_width: int | None, rows: int, length: int, memory_length: int
) -> float:
    """Return the activation bytes that one block on `rows` answers keeps for the backward pass."""
    block = block_activation_bytes(config, gate_width, rows, length)
    return block + cross_attention_activation_bytes(config, rows, length, memory_length)
