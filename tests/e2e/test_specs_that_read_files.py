"""A spec whose task reads published files runs to its end, with files in the folder that the spec names."""

import re
from pathlib import Path

import pytest

from orchestrator.identity import SweepFolder
from orchestrator.spec.load import load_spec
from tests.oracles.solvers import lra_text_solver
from tests.support.processes.commands import Shell

SPEC = Path(__file__).parents[2] / "experiments" / "lra-text.yaml"
SHORT_TRAINING = (
    "baseline.train.steps=2",
    "baseline.train.warmup_steps=1",
    "baseline.train.report_every=1",
    "confirm.seeds=[101]",
    "baseline.task.valid_examples=10",  # the files have 40 reviews
)


@pytest.mark.slow
def test_spec_of_published_files_runs_to_its_report(tmp_path: Path) -> None:
    shell = Shell.at(tmp_path)
    spec = load_spec(SPEC, profile="small")
    data_folder = shell.folder / spec.baseline.task["folder"]
    data_folder.parent.mkdir()
    lra_text_solver.write_files(data_folder, 3)
    launched = shell.run("launch", str(SPEC), *SHORT_TRAINING, "--profile", "small", "--driver", "inline")
    assert launched.code == 0, launched.err
    arms = ("baseline", *spec.arms)
    assert f"trials: {len(arms)} finished" in launched.out
    report = (SweepFolder(shell.folder / "runs" / spec.name).report / "report.md").read_text()
    assert re.search(r"^\| floor [^|]*\| 0\.", report, re.MULTILINE)
    for arm in arms:
        assert re.search(rf"^\| {arm} \| [01]\.\d\d\d \(1\) \|", report, re.MULTILINE), report
