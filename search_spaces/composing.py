"""Continuous recursive network: three dropouts and the halting threshold.

A token counts as surviving if its existence probability exceeds the halting threshold. Sources: Ray Chowdhury
and Caragea, "Modeling Hierarchical Structures with Continuous Recursive Neural Networks", whose released
search varies each dropout from 0.1 to 0.4 on ListOps (to 0.3 on logical inference) and whose halting
threshold is 0.01; the same authors, "On the Design Space Between Transformers and Recursive Neural Nets",
whose runs have a threshold of 0.1 and dropouts of 0.1 throughout.
"""

from search_spaces.dimensions import Choice, Dimension, Float, Space

_DROPOUTS = "Modeling Hierarchical Structures with Continuous Recursive Neural Networks, released search"
_THRESHOLDS = "released settings of both papers: 0.01 of the first, 0.1 of the second"
_RATES = Choice((0.1, 0.2, 0.3, 0.4))
_WIDE_RATES = Float(0.0, 0.5)

published = Space(
    (
        Dimension("model.dropout", _RATES, source=_DROPOUTS),
        Dimension("model.cell_dropout", _RATES, source=_DROPOUTS),
        Dimension("model.readout_dropout", _RATES, source=_DROPOUTS),
        Dimension("model.halt.threshold", Choice((0.01, 0.1)), source=_THRESHOLDS),
    )
)
wide = Space(
    (
        Dimension("model.dropout", _WIDE_RATES, source="from 0 to slightly above the published"),
        Dimension("model.cell_dropout", _WIDE_RATES, source="from 0 to slightly above the published"),
        Dimension("model.readout_dropout", _WIDE_RATES, source="from 0 to slightly above the published"),
        Dimension(
            "model.halt.threshold", Float(0.001, 0.5, log=True), source="1/10 to 5 times the published"
        ),
    )
)
