"""Between the host's memory and a device: what makes the host wait, and what does not."""

import numpy as np
import torch
from jaxtyping import Bool, Shaped
from torch import Tensor


def on_host(flags: Bool[Tensor, " U"]) -> Bool[np.ndarray, " U"]:
    """The same truth values where the host can read them: it waits for the device."""
    return np.asarray(flags.tolist(), dtype=bool)


def uploaded(table: Shaped[np.ndarray, "..."], device: torch.device) -> Shaped[Tensor, "..."]:
    """The same numbers on `device`; the host does not wait until they are there."""
    found = torch.from_numpy(table)
    return found.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else found
