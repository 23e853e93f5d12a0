"""Recurrence over chunks: chunk size or count, and memory slots passed between chunks.

A sequence is split either into chunks of a fixed size or into a fixed number of chunks. Sources: Ray
Chowdhury and Caragea, "Investigating Recurrent Transformers with Dynamic Halt", appendix A (chunks of 10 with
10 slots on logical inference and flip-flop, chunks of 100 on retrieval), its released configurations (20 and
20 on ListOps-O, 100 and 100 on ListOps of Long Range Arena, 10 and 10 on text, 32 and 5 on images, 64 and 5
on Pathfinder) and section 6.6 (fixed recurrence: five chunks at any length). All chunk sizes above the input
length are equivalent. For short inputs, write a shorter range in the spec.
"""

from search_spaces.dimensions import Choice, Constraint, Dimension, Int, Space, When

_SIZES = "Investigating Recurrent Transformers with Dynamic Halt, appendix A and released configurations"
_COUNT = "Investigating Recurrent Transformers with Dynamic Halt, section 6.6: fixed recurrence"
_BY_SIZE = (When("model.chunk.by", ("size",)),)
_BY_COUNT = (When("model.chunk.by", ("count",)),)
_LIMITS = (Constraint("model.chunk.size", "<=", "task.train_length_max"),)

published = Space(
    (
        Dimension("model.chunk.by", Choice(("size", "count")), source=_COUNT),
        Dimension("model.chunk.size", Choice((10, 20, 32, 64, 100)), _BY_SIZE, _SIZES),
        Dimension("model.chunk.count", Choice((5,)), _BY_COUNT, _COUNT),
        Dimension("model.memory.slots", Choice((5, 10, 20, 100)), source=_SIZES),
    ),
    _LIMITS,
)
wide = Space(
    (
        Dimension("model.chunk.by", Choice(("size", "count")), source=_COUNT),
        Dimension("model.chunk.size", Int(4, 256, log=True), _BY_SIZE, "from below to above published"),
        Dimension("model.chunk.count", Int(2, 16), _BY_COUNT, "from below to above published"),
        Dimension("model.memory.slots", Int(1, 128, log=True), source="from below to above published"),
    ),
    _LIMITS,
)
