"""Checks every shape and type that models and their parts write in signatures, while tests run."""

from jaxtyping import install_import_hook

install_import_hook(
    ["trainables.layers", "trainables.models", "trainables.heads", "trainables.types"], "beartype.beartype"
)
