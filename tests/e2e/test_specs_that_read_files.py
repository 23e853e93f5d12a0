"""Specs whose tasks read published files run to their end, with files in the folder that the spec names."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.identity import SweepFolder
from orchestrator.spec.load import load_spec
from tests.oracles.solvers import lra_image_solver, lra_retrieval_solver, lra_text_solver
from tests.support.processes.commands import Shell

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
SHORT_TRAINING = (
    "baseline.train.steps=2",
    "baseline.train.warmup_steps=1",
    "baseline.train.report_every=1",
    "confirm.seeds=[101]",
)


def write_images(folder: Path) -> None:
    lra_image_solver.write_files(folder, 3, "python 2")


def write_papers(folder: Path) -> None:
    lra_retrieval_solver.write_files(folder, 3)


def write_reviews(folder: Path) -> None:
    lra_text_solver.write_files(folder, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "write_files", "overrides"),
    [
        ("lra-image", write_images, ()),
        ("lra-retrieval", write_papers, ()),
        ("lra-text", write_reviews, ("baseline.task.valid_examples=10",)),  # the files have 40 reviews
    ],
)
def test_spec_of_published_files_runs_to_its_report(
    name: str, write_files: Callable[[Path], None], overrides: tuple[str, ...], tmp_path: Path
) -> None:
    shell = Shell.at(tmp_path)
    spec = load_spec(EXPERIMENTS / f"{name}.yaml", profile="small")
    data_folder = shell.folder / spec.baseline.task["folder"]
    data_folder.parent.mkdir()
    write_files(data_folder)
    launched = shell.run(
        *("launch", str(EXPERIMENTS / f"{name}.yaml"), *SHORT_TRAINING, *overrides),
        *("--profile", "small", "--driver", "inline"),
    )
    assert launched.code == 0, launched.err
    arms = ("baseline", *spec.arms)
    assert f"trials: {len(arms)} finished" in launched.out
    report = (SweepFolder(shell.folder / "runs" / spec.name).report / "report.md").read_text()
    assert "| floor (most common label) | 0." in report
    for arm in arms:
        assert re.search(rf"^\| {arm} \| [01]\.\d\d\d \(1\) \|", report, re.MULTILINE), report
