"""Fixtures that call the command line in this process, and that collect pictures of opened pages."""

import pytest

from tests.e2e.pictures import EXAMPLE_CHANGES, EXPERTS_CHANGES, FIGURES, Pictures, run_example_sweep
from tests.e2e.sweeps import Sweep, finished_sweep
from tests.support.processes.in_process import haltsweep, untracked

__all__ = ["haltsweep", "pictures", "untracked"]
Root = pytest.TempPathFactory


@pytest.fixture(scope="session")
def pictures(request: pytest.FixtureRequest, tmp_path_factory: Root) -> Pictures:
    """Pictures in a temporary folder, or with `--retake-pictures` in the folder of the documentation."""
    is_published = bool(request.config.getoption("--retake-pictures"))
    return Pictures(
        request.config.rootpath / FIGURES if is_published else tmp_path_factory.mktemp("pictures"),
        is_published,
    )


@pytest.fixture(scope="session")
def comparison_sweep(pictures: Pictures, tmp_path_factory: Root) -> Sweep:
    """A finished sweep in MLflow: invented, or for published pictures the example sweep."""
    root = tmp_path_factory.mktemp("compared")
    return (
        run_example_sweep(root, "quickstart", EXAMPLE_CHANGES)
        if pictures.is_published
        else finished_sweep(root / "runs")
    )


@pytest.fixture(scope="session")
def experts_sweep(tmp_path_factory: Root) -> Sweep:
    """A finished example sweep with experts, for published pictures."""
    return run_example_sweep(tmp_path_factory.mktemp("sparse"), "experts", EXPERTS_CHANGES)
