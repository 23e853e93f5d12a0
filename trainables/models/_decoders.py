"""What decoders share: the result, and the costs of a block that attends to encoded inputs."""

from jaxtyping import Float
from torch import Tensor

from trainables.layers.block import BlockSettings
from trainables.layers.boundaries import NoBoundaries
from trainables.layers.costs import block_flops, block_saved_bytes, recall_flops, recall_saved_bytes
from trainables.layers.packing import Packing
from trainables.recurrence.result import RecurrenceResult
from trainables.types import Encoded


def written(result: RecurrenceResult, packing: Packing, y: Float[Tensor, "N T D"], bound: int) -> Encoded:
    """What a decoder that can run at most `bound` layers returns for answers `y` that ended as `result`."""
    return result.encoded(NoBoundaries(), packing, y, pooling="end", bound=bound)


def recalling_flops(config: BlockSettings, gate_width: int | None, length: int, memory_length: int) -> float:
    """One block on an answer of `length` tokens attending to `memory_length` states."""
    return block_flops(config, gate_width, length) + recall_flops(config, length, memory_length)


def recalling_saved_bytes(
    config: BlockSettings, gate_width: int | None, rows: int, length: int, memory_length: int
) -> float:
    """Activation bytes that one block on `rows` answers keeps for the backward pass."""
    block = block_saved_bytes(config, gate_width, rows, length)
    return block + recall_saved_bytes(config, rows, length, memory_length)
