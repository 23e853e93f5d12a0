"""The solver of ListOps-O for the same language."""

from tests.oracles.solvers.listops_solver import solve  # noqa: F401 the contract calls it

SMALL = {"name": "listops_lra", "train_examples": 150, "valid_examples": 30, "test_examples": 30}
RESEEDED = SMALL | {"data_seed": 1}
