"""Own training code that is installed nowhere runs on machines that do not see the folder it is in."""

import json

import pytest

from tests.faults.test_machines import keep_token
from tests.support.commands import Shell, wait_for
from tests.support.ray_machines import machines, needs_namespaces
from tests.support.s3 import s3_server

pytestmark = [pytest.mark.slow, needs_namespaces]
CODE = """
from pathlib import Path
from {helper} import slope

def train(settings, trial):
    saved, first = trial.folder / "step.txt", 1
    if saved.exists():
        first = int(saved.read_text()) + 1
    for step in range(first, settings["steps"] + 1):
        saved.write_text(str(step))
        sees = float(Path({folder!r}, "tiny.yaml").exists())
        trial.report(step, {{"valid/score": slope(settings["lr"]) * step, "valid/sees_folder": sees}})
"""
SPEC = """
name: travelling
question: Does code that is not installed reach every machine?
trainable: {trainable}
baseline: {{lr: 0.1, steps: 3}}
arms: {{longer: {{why: more steps, set: {{steps: 4}}}}}}
search: {{trials_per_arm: 2, sampler: random, objectives: [{{metric: valid/score, goal: max}}],
         also: {{lr: {{float: [0.1, 0.2]}}}}}}
confirm: {{seeds: [1, 2]}}
resources: {{cpus: 1, checkpoint_seconds: 0.01}}
"""
HELPER = "def slope(lr):\n    return 1.0 - (lr - 0.15) ** 2\n"


def module(folder):
    """One file."""
    (folder / "travels.py").write_text(
        HELPER + CODE.format(helper="math", folder=str(folder)).replace("from math import slope\n", "")
    )
    return "travels:train"


def package(folder):
    """A package whose parts import each other."""
    (folder / "travelling_kit").mkdir()
    (folder / "travelling_kit" / "__init__.py").write_text("")
    (folder / "travelling_kit" / "helper.py").write_text(HELPER)
    code = CODE.format(helper="travelling_kit.helper", folder=str(folder))
    (folder / "travelling_kit" / "training.py").write_text(code)
    return "travelling_kit.training:train"


def test_it_is_sent_to_every_node(tmp_path):
    shell = Shell.at(tmp_path)
    with s3_server(tmp_path / "s3.log") as s3, machines(shell.environment, head_cpus=0) as cluster:
        keep_token(shell, cluster.token)
        node = cluster.join(without=[shell.folder])
        wait_for(lambda: "Ray runtime started" in (cluster.temporary / "node-1.txt").read_text(), node)
        for written in (module, package):
            (shell.folder / "own.yaml").write_text(SPEC.format(trainable=written(shell.folder)))
            name = written.__name__
            places = ("--address", cluster.address, "--checkpoints", s3.uri)
            said = shell.run("launch", "own.yaml", f"name={name}", *places)
            assert said.code == 0, said.err
            trials = json.loads(shell.run("status", name, "--json").out)["trials"]
            assert [each["outcome"] for each in trials] == ["finished"] * 8
            assert {each["metrics"]["valid/sees_folder"] for each in trials} == {0.0}
