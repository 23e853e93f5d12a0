"""Sparse mixtures: numbers of experts, active experts per token, attention window.

Source: Tan et al., "Sparse Universal Transformer", section 4, and the scripts of its released code: 24 or 48
experts for translation, 12 for logical inference, always 4 of them active; windows of 64 and 1. The number of
active experts determines the compute per token. The total number of experts only affects memory.
"""

from search_spaces.dimensions import Choice, Constraint, Dimension, Int, Space

_EXPERTS = "Sparse Universal Transformer, section 4 and its scripts: logic, translation (base and big)"
_WINDOW = "Sparse Universal Transformer, section 4: logic and translation"
_LIMITS = (
    Constraint("model.attention.active", "<=", "model.attention.experts"),
    Constraint("model.feedforward.active", "<=", "model.feedforward.experts"),
)

published = Space(
    (
        Dimension("model.attention.experts", Choice((12, 24, 48)), source=_EXPERTS),
        Dimension("model.feedforward.experts", Choice((12, 24, 48)), source=_EXPERTS),
        Dimension("model.attention.active", Choice((4,)), source=_EXPERTS),
        Dimension("model.feedforward.active", Choice((4,)), source=_EXPERTS),
        Dimension("model.attention.window", Choice((1, 64)), source=_WINDOW),
    ),
    _LIMITS,
)
wide = Space(
    (
        Dimension("model.attention.experts", Int(1, 64, log=True), source="1 (dense) to above published"),
        Dimension("model.feedforward.experts", Int(1, 64, log=True), source="1 (dense) to above published"),
        Dimension("model.attention.active", Int(1, 8), source="up to twice the published number"),
        Dimension("model.feedforward.active", Int(1, 8), source="up to twice the published number"),
        Dimension("model.attention.window", Int(0, 64), source="from 0 to the published maximum"),
    ),
    _LIMITS,
)
