"""Looped Transformers: heads and layers of the block, and the curriculum interval.

The interval is the number of steps after which the maximum query length grows by one. Source: Fan et al.,
"Looped Transformers for Length Generalization", Table 2, which lists the chosen values for six problems.
"""

from search_spaces.dimensions import Choice, Dimension, Int, Space

_TABLE = "Looped Transformers for Length Generalization, table 2: all listed values"

published = Space(
    (
        Dimension("model.heads", Choice((8, 16, 64)), source=_TABLE),
        Dimension("model.layers", Int(1, 4), source=_TABLE),
        Dimension("task.interval", Choice((500, 1000, 1600)), source=_TABLE),
    )
)
wide = Space(
    (
        Dimension("model.heads", Choice((1, 2, 4, 8, 16, 32, 64)), source="powers of 2 up to the published"),
        Dimension("model.layers", Int(1, 8), source="up to twice the published number"),
        Dimension("task.interval", Int(100, 3200, log=True), source="from below to above the published"),
    )
)
