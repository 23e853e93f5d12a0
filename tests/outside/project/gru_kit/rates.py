"""Learning rates and depths of recurrent networks."""

from search_spaces.dimensions import Choice, Dimension, Float, Space

published = Space(
    (
        Dimension("train.lr", Float(1e-3, 1e-2, log=True), source="ours"),
        Dimension("model.layers", Choice((1, 2)), source="ours"),
    )
)
wide = Space((Dimension("train.lr", Float(1e-4, 1e-1, log=True), source="ours"),))
