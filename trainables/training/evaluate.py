"""Measuring a model on one split."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from trainables.training.step import Learner
from trainables.training.threads import cpu_threads
from trainables.types import Batch, Output

PERCENTILES = (10, 50, 90)
"""Of the halting depth over samples, reported as `depth_p10`, `depth_p50`, `depth_p90`."""


@torch.inference_mode()
def evaluate(learner: Learner, batches: Iterable[Batch]) -> dict[str, float]:
    """Quantities of a split, by name without the split's.

    `loss`, `ponder` and `depth` are means over samples, `accuracy` is over predictions, `saved` is the share
    of layer-steps not run of those that no halting would cost, `floor` is the accuracy of always answering
    the split's commonest label. How the split is cut into batches does not matter but for rounding.
    """
    rows: list[Tensor] = []
    labels: list[Tensor] = []
    learner.model.eval()
    with cpu_threads(learner.config.threads), learner.autocast():
        for batch in batches:
            rows.append(_rows(learner.model(batch)))
            labels.append(batch.labels)
    learner.model.train()
    # One transfer for the whole split: nothing in the loop waits for the device.
    return _quantities(torch.cat(rows, dim=1).cpu().numpy(), torch.cat(labels).cpu().numpy())


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
    )
    return torch.stack([column.double() for column in columns])


def _quantities(rows: np.ndarray, labels: np.ndarray) -> dict[str, float]:
    loss, hits, counts, ponder, depth, computed, bound = rows
    return {
        "loss": float(loss.mean()),
        "accuracy": float(hits.sum() / counts.sum()),
        "ponder": float(ponder.mean()),
        "depth": float(depth.mean()),
        **{f"depth_p{p}": float(np.percentile(depth, p)) for p in PERCENTILES},
        "saved": float(1 - computed.sum() / bound.sum()),
        "floor": _floor(labels),
    }


def _floor(labels: np.ndarray) -> float:
    return float(np.unique(labels, return_counts=True)[1].max() / len(labels))
