"""Dynamic halting: weight of the ponder cost (beta), threshold (alpha_thresh), maximum number of layers.

Sources: Ray Chowdhury and Caragea, "Investigating Recurrent Transformers with Dynamic Halt", appendix A (beta
chosen among four values on the ListOps-O validation split, 0 on logical inference; a fixed threshold of
0.999; at most 15 layers on logical inference and Long Range Arena), the earlier version of the paper (10
layers on ListOps-O) and its released configurations (20 on flip-flop; 3 on images, 4 on Pathfinder); Tan et
al., "Sparse Universal Transformer", section 4.4 (thresholds 0.1 to 0.9 after training; 1 for translation).

A beta of 0 disables the ponder cost. A logarithmic range cannot contain 0, so a spec that includes it must
write a custom range. A model whose bound applies within chunks also needs a custom range (2, 3, 5 or 10
layers in the released configurations).
"""

from search_spaces.dimensions import Choice, Dimension, Float, Int, Space

_BETA = "Investigating Recurrent Transformers with Dynamic Halt, appendix A"
_THRESHOLD = "Sparse Universal Transformer, section 4.4; 0.999 is what every system trains with"
_BOUND = "Investigating Recurrent Transformers with Dynamic Halt, both versions and released configurations"

published = Space(
    (
        Dimension("train.ponder_weight", Choice((0.001, 0.01, 0.1, 1.0)), source=_BETA),
        Dimension(
            "model.halt.threshold",
            Choice((0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.999)),
            source=_THRESHOLD,
        ),
        Dimension("model.max_layers", Choice((3, 4, 10, 15, 20)), source=_BOUND),
    )
)
wide = Space(
    (
        Dimension(
            "train.ponder_weight", Float(1e-5, 1.0, log=True), source="from 1/100 of the least published"
        ),
        Dimension("model.halt.threshold", Float(0.05, 0.999), source="from below to above most published"),
        Dimension("model.max_layers", Int(2, 40), source="up to the bound of the published runtime study"),
    )
)
