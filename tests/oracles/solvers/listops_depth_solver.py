"""The solver of ListOps-O for the same language."""

from tests.oracles.solvers import listops_solver

SMALL = {"name": "listops_depth", "train_examples": 300, "test_examples": 20}
RESEEDED = SMALL | {"data_seed": 1}
VARIANTS = {"dg": {"variant": "dg"}, "dg1": {"variant": "dg1"}}


def solve(text: str, variant: str = "dg2") -> int:
    """Return the value of an expression; the variant, which limits the depth, does not affect it."""
    return listops_solver.solve(text)
