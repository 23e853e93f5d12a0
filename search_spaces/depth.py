"""Maximum number of layers, without other dimensions.

Source: Ray Chowdhury and Caragea, "Investigating Recurrent Transformers with Dynamic Halt", table 5 (costs of
models with at most 10, 20, 30 and 40 layers).
"""

from search_spaces.dimensions import Choice, Dimension, Int, Space

published = Space(
    (
        Dimension(
            "model.max_layers",
            Choice((10, 20, 30, 40)),
            source="Investigating Recurrent Transformers with Dynamic Halt, table 5",
        ),
    )
)
wide = Space((Dimension("model.max_layers", Int(1, 64, log=True), source="from one layer to 64"),))
