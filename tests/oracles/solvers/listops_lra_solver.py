"""The same language as ListOps-O, read by the same solver."""

from tests.oracles.solvers.listops_solver import solve  # noqa: F401 what the contract asks for

SMALL = {"name": "listops_lra", "train_examples": 150, "valid_examples": 30, "test_examples": 30}
RESEEDED = SMALL | {"data_seed": 1}
