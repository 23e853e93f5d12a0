"""The same language as ListOps-O, read by the same solver."""

from tests.oracles.listops_solver import solve  # noqa: F401 what the contract asks for

SMALL = {"name": "listops_depth", "train_examples": 300, "test_examples": 20}
RESEEDED = SMALL | {"data_seed": 1}
