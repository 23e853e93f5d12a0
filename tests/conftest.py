"""Checks every shape and type that models and their parts write in signatures, while tests run."""

import os

from hypothesis import settings
from jaxtyping import install_import_hook

# Tests work on tiny tensors, where threads only wait for each other; read when torch is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

install_import_hook(
    ["trainables.layers", "trainables.models", "trainables.heads", "trainables.types"], "beartype.beartype"
)

# A slow machine is no failure.
settings.register_profile("haltsweep", deadline=None)
settings.load_profile("haltsweep")
