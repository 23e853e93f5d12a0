"""FLOPs and saved bytes of a block, by arithmetic on its sizes.

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


def recall_flops(config: BlockSettings, queries: int, sources: int) -> float:
    """Cross-attention of `queries` vectors to `sources` vectors, the latter's keys and values not counted."""
    inner = config.heads * config.size_of_head
    return 2 * linear_flops(queries, config.width, inner) + 2 * linear_flops(queries, inner, sources)


def offer_flops(config: BlockSettings, sources: int) -> float:
    """Keys and values of `sources` vectors."""
    return 2 * linear_flops(sources, config.width, config.heads * config.size_of_head)


def block_saved_bytes(config: BlockSettings, gate_width: int | None, rows: int, tokens: int) -> float:
    """What one run of a block on `rows` sequences of `tokens` positions keeps for the backward pass.

    A position keeps its state, two norms of it, the attended state and its norm (5 width); queries, keys and
    values as they are multiplied, and what attention returns (4 heads * head_width); two copies of each
    hidden layer; two widths more for a gate; and one byte for each element a dropout may take. Attention
    weights are kept only where they have no fused kernel, or dropout: then with a byte each.
    """
    inner = config.heads * config.size_of_head
    hidden = config.size_of_feedforward + (gate_width or 0)
    floats = 5 * config.width + 4 * inner + 2 * hidden + (2 * config.width if gate_width else 0)
    masks = (3 if gate_width else 2) * config.width + hidden if config.dropout else 0
    return rows * tokens * (FLOAT_BYTES * floats + masks + _weight_bytes(config, tokens))


def recall_saved_bytes(config: BlockSettings, rows: int, queries: int, sources: int) -> float:
    """Activation bytes that cross-attention of `queries` vectors to `sources` vectors, in each of `rows`
    rows, keeps.

    A query keeps its state, two norms of it, its projection and what attention returns; a source keeps its
    state, a norm of it, its key and its value.
    """
    inner = config.heads * config.size_of_head
    asking = FLOAT_BYTES * (3 * config.width + 2 * inner) + (config.width if config.dropout else 0)
    offering = FLOAT_BYTES * (2 * config.width + 2 * inner)
    return rows * (queries * (asking + _weight_bytes(config, sources)) + sources * offering)


def _weight_bytes(config: BlockSettings, keys: int) -> float:
    """Attention weights of one query, where they are kept at all."""
    if not config.attention_dropout and config.attention != "math":
        return 0.0
    return float(config.heads * keys * (FLOAT_BYTES + bool(config.attention_dropout)))


def recalling_flops(config: BlockSettings, gate_width: int | None, length: int, memory_length: int) -> float:
    """One block on an answer of `length` tokens attending to `memory_length` states."""
    return block_flops(config, gate_width, length) + recall_flops(config, length, memory_length)


def recalling_saved_bytes(
    config: BlockSettings, gate_width: int | None, rows: int, length: int, memory_length: int
) -> float:
    """Activation bytes that one block on `rows` answers keeps for the backward pass."""
    block = block_saved_bytes(config, gate_width, rows, length)
    return block + recall_saved_bytes(config, rows, length, memory_length)
