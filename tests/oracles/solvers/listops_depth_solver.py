"""The same language as ListOps-O, read by the same solver."""

from tests.oracles.solvers import listops_solver

SMALL = {"name": "listops_depth", "train_examples": 300, "test_examples": 20}
RESEEDED = SMALL | {"data_seed": 1}
VARIANTS = {"dg": {"variant": "dg"}, "dg1": {"variant": "dg1"}}


def solve(text: str, variant: str = "dg2") -> int:
    """The value; how deep a tree may be changes none."""
    return listops_solver.solve(text)
