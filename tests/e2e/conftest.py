"""The command line, called in this process; pictures of what tests open."""

import pytest

from tests.e2e.pictures import FIGURES, SPARSE, STUDY, Pictures, box_study
from tests.e2e.sweeps import Sweep, finished_sweep
from tests.support.processes.in_process import haltsweep, untracked

__all__ = ["haltsweep", "pictures", "untracked"]
Root = pytest.TempPathFactory


@pytest.fixture(scope="session")
def pictures(request: pytest.FixtureRequest, tmp_path_factory: Root) -> Pictures:
    """In a folder of their own, but with `--retake-pictures` where they are shown."""
    kept = bool(request.config.getoption("--retake-pictures"))
    return Pictures(request.config.rootpath / FIGURES if kept else tmp_path_factory.mktemp("pictures"), kept)


@pytest.fixture(scope="session")
def compared(pictures: Pictures, tmp_path_factory: Root) -> Sweep:
    """A sweep in MLflow: made up, or for pictures that are shown a study of the box."""
    root = tmp_path_factory.mktemp("compared")
    return box_study(root, "quickstart", STUDY) if pictures.kept else finished_sweep(root / "runs")


@pytest.fixture(scope="session")
def sparse(tmp_path_factory: Root) -> Sweep:
    """A study of the box with experts, for pictures that are shown."""
    return box_study(tmp_path_factory.mktemp("sparse"), "experts", SPARSE)
