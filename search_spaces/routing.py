"""Neural Data Router: steps in training and tests, and dropout of the copy gate.

Sources: Csordas, Irie and Schmidhuber, "The Neural Data Router", with their released settings for ListOps (20
steps in training, 24 in tests, a gate dropout of 0.05); Ray Chowdhury and Caragea, "On the Design Space
Between Transformers and Recursive Neural Nets", tables 2 and 3 (24 and 48 test steps on ListOps after 20
training steps, 15 and 30 on logical inference after 15). The number of test steps does not affect training,
so `posthoc` can also vary it.
"""

from search_spaces.dimensions import Choice, Constraint, Dimension, Float, Int, Space, When

_TABLES = "On the Design Space Between Transformers and Recursive Neural Nets, tables 2 and 3"
_RELEASED = "The Neural Data Router, released settings for ListOps"
_IF_GATED = (When("model.gate", (True,)),)
_LIMITS = (Constraint("model.layers", "<=", "model.test_layers"),)

published = Space(
    (
        Dimension("model.layers", Choice((15, 20)), source=_TABLES),
        Dimension("model.test_layers", Choice((15, 24, 30, 48)), source=_TABLES),
        Dimension("model.gate_dropout", Choice((0.05,)), _IF_GATED, _RELEASED),
    ),
    _LIMITS,
)
wide = Space(
    (
        Dimension("model.layers", Int(4, 32), source="from 4 steps to above the published"),
        Dimension("model.test_layers", Int(4, 64), source="up to a third above the published"),
        Dimension("model.gate_dropout", Float(0.0, 0.2), _IF_GATED, "from 0 to four times the published"),
    ),
    _LIMITS,
)
