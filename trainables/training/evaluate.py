"""Compute the metrics of a model on one split: loss, accuracy, depth, ponder cost, saved layers, floor."""

from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import Tensor

from trainables.metrics import Metric
from trainables.training.step import Learner, evaluating
from trainables.types import NOT_ASKED, Batch, Encoded, Output

PERCENTILES = (10, 50, 90)
"""Percentiles of the halting depth over samples, reported as `depth_p10`, `depth_p50`, `depth_p90`."""
NUM_COMMON = 7
"""Number of rows that every head returns, before those of `Output.shares`."""
SAVED = "saved"
"""Name of the metric, and value of `moves_with` for metrics that depend on executed layers, including layers
whose results are discarded.
"""
quality = (
    Metric(
        "accuracy",
        "max",
        low=0.0,
        high=1.0,
        meaning="share of right answers",
        shown=("table", "headline", "posthoc", "figure"),
        floor_from="floor",
        floor_name="most common label",
    ),
)
costs = (
    Metric(
        "depth",
        unit="layers",
        low=0.0,
        meaning="layers kept; the layer that reaches the halting threshold is computed, but discarded",
        high_from="depth_bound",
        is_cost=True,
        shown=("table", "beside", "posthoc", "figure"),
        moves_with="depth",
    ),
    Metric(
        SAVED,
        low=0.0,
        high=1.0,
        meaning="share of layers that halting left out",
        shown=("table",),
        moves_with=SAVED,
    ),
    Metric(
        "ponder",
        unit="layers",
        low=0.0,
        meaning="ponder cost, whose weight in training is train.ponder_weight",
        shown=("table",),
        moves_with="ponder",
    ),
    Metric("loss", "min", unit="nats", low=0.0, meaning="nats, without the ponder cost", shown=("table",)),
    *(Metric(f"depth_p{p}", unit="layers", low=0.0, shown=(), moves_with="depth") for p in PERCENTILES),
    Metric(
        "depth_bound",
        unit="layers",
        low=0.0,
        shown=(),
        given="is fixed by the settings of the model; choose the depth that it bounds",
    ),
    Metric(
        "floor",
        "max",
        low=0.0,
        high=1.0,
        shown=(),
        given="is fixed by the data and equal in every trial; choose the metric that it is a floor of",
    ),
)


ForwardFlops = Callable[[np.ndarray, np.ndarray], float]
"""Function from the tokens of each sample and its share of executed layers to mean FLOPs, as
`FlopsCalculator.sample_flops`.
"""


@torch.inference_mode()
def evaluate(
    learner: Learner, batches: Iterable[Batch], forward_flops: ForwardFlops | None = None
) -> dict[str, float]:
    """Return the metrics of a split by name; names omit the prefix of the split.

    Args:
        learner: The model and its training settings.
        batches: All samples of the split. Their division into batches affects only rounding.
        forward_flops: Function for FLOPs; None omits the metric `flops`.

    Returns:
        `loss`, `ponder`, `depth` and `depth_bound` (the depth without halting) are means over samples,
        `accuracy` over predictions. `saved` is the share of the layer-steps in these bounds that did not run.
        `floor` is the accuracy of always predicting the most common label of the split, or a value that the
        head defines. Further values of a head (`Output.shares`) and `flops`, the FLOPs of a forward pass, are
        means over samples.
    """
    names: tuple[str, ...] = ()
    rows: list[Tensor] = []
    labels: list[Tensor] = []
    lengths: list[Tensor] = []
    with evaluating(learner):
        for batch in batches:
            output = learner.model(batch)
            names = tuple(output.shares)
            rows.append(_rows(output))
            labels.append(batch.labels)
            lengths.append(batch.mask.sum(1))
    # Transfer the results of the split at once, so that the loop never waits for the device.
    table = torch.cat(rows, dim=1).cpu().numpy()
    mean_shares = {name: float(row.mean()) for name, row in zip(names, table[NUM_COMMON:], strict=True)}
    floor: Callable[[list[Tensor]], float] = getattr(learner.model, "floor", _floor)
    metrics = _metrics(table[:NUM_COMMON]) | {"floor": floor(labels)} | mean_shares
    if forward_flops is not None:
        *_, num_computed, bound = table[:NUM_COMMON]
        metrics["flops"] = forward_flops(torch.cat(lengths).cpu().numpy(), _share(num_computed, bound))
    return metrics


def _share(num_computed: np.ndarray, bound: np.ndarray) -> np.ndarray:
    """Return the share of layer-steps that ran; 1 where none could, e.g. in a tree of one token."""
    shares = np.ones_like(bound)
    np.divide(num_computed, bound, out=shares, where=bound > 0)
    return shares


def _rows(output: Output) -> Tensor:
    encoded = output.encoded
    columns = (
        output.loss,
        output.hits,
        output.counts,
        encoded.ponder,
        encoded.depth,
        encoded.computed,
        encoded.bound,
        *output.shares.values(),
    )
    return torch.stack([column.double() for column in columns])


def _metrics(rows: np.ndarray) -> dict[str, float]:
    loss, hits, counts, ponder, depth, computed, bound = rows
    return {
        "loss": float(loss.mean()),
        "accuracy": float(hits.sum() / counts.sum()),
        "ponder": float(ponder.mean()),
        "depth": float(depth.mean()),
        **{f"depth_p{p}": float(np.percentile(depth, p)) for p in PERCENTILES},
        "depth_bound": float(bound.mean()),
        SAVED: 1 - float(_share(computed.sum(), bound.sum())),
    }


def halting(encoded: Encoded) -> dict[str, float]:
    """Return depth, ponder cost and saved layers of one forward pass, as means over samples."""
    return {
        "depth": float(encoded.depth.mean()),
        "ponder": float(encoded.ponder.detach().mean()),
        SAVED: float(1 - encoded.computed.sum() / encoded.bound.sum()),
    }


def _floor(labels: list[Tensor]) -> float:
    flat = torch.cat([part.flatten() for part in labels]).cpu().numpy()
    targets = flat[flat != NOT_ASKED]
    return float(np.unique(targets, return_counts=True)[1].max() / len(targets))
