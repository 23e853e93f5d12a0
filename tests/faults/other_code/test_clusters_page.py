"""The files that show how to run on clusters are run, as far as one machine allows; what they say is true."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import typer
import yaml

from orchestrator.cli.main import app
from orchestrator.execution.sweep.launch_folder import read_launched_plan
from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import EventKind
from tests.architecture.source import ROOT
from tests.faults.kills.chaos import check_log
from tests.faults.other_code.test_machines import OWN_CODE, events, seen
from tests.support.processes.commands import PATIENCE_S, Shell, commands_by_name, wait_for
from tests.support.training_code.travelling import write_code

SLOW = (
    OWN_CODE.replace("steps: 50, pause: 0.02", "steps: 40, pause: 0.1")
    .replace("steps: 51", "steps: 41")
    .replace("trials_per_arm: 2000", "trials_per_arm: 1")
    .replace("checkpoint_seconds: 0.01", "checkpoint_seconds: 0.5")
    .replace("resources:", "confirm: {best: 1, seeds: [101], splits: [test]}\nresources:")
)
"""Trials that confirm are left when a signal is heard after the first checkpoint. They load no PyTorch, which
eleven processes would."""
FILES = ROOT / "orchestrator" / "clusters"
PAGE = ROOT / "docs" / "how-to" / "several-machines.md"
JOB = 4711
FAKES = {
    # Of SLURM's: the names of the job's nodes; a command on one of them, which is this machine.
    "scontrol": 'tr , "\\n" <<< "$3"',
    "srun": 'while [[ $1 = --* ]]; do shift; done; [[ $1 != hostname ]] || set echo "$ADDRESS"; exec "$@"',
}


def test_the_script_for_slurm_is_sound():
    subprocess.run(["bash", "-n", str(FILES / "slurm.sh")], check=True)
    asked = re.findall(r"^#SBATCH --([a-z-]+)=", (FILES / "slurm.sh").read_text(), re.MULTILINE)
    assert {"nodes", "ntasks-per-node", "time", "signal"} <= set(asked)


@pytest.mark.slow
def test_the_script_for_slurm_runs_is_signalled_and_goes_on(tmp_path):
    shell = Shell.at(tmp_path, SLOW)
    write_code(shell.folder)
    environment = allocation(shell, tmp_path)
    with Job(shell, environment) as process:
        wait_for(lambda: seen(shell, EventKind.CHECKPOINTED), process)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert "stopping: running trials are saved at their next report" in err
    assert not left(), "what the job started ends with it"
    ended = seen(shell, EventKind.ENDED)
    # The next job has a node alone, which makes a cluster too.
    with Job(shell, {**environment, "SLURM_JOB_NODELIST": "one"}) as process:
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, err
    assert "tiny: resuming, in" in out
    assert seen(shell, EventKind.ENDED) > ended
    check_log(events(shell), read_launched_plan(SweepFolder(shell.folder / "runs" / "tiny")))
    assert not left()


def allocation(shell, tmp_path):
    """What SLURM would say to the script."""
    fakes = tmp_path / "bin"
    fakes.mkdir()
    for name, body in FAKES.items():
        (fakes / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (fakes / name).chmod(0o755)
    found = [each for all_of in psutil.net_if_addrs().values() for each in all_of if each.family == 2]
    addresses = [each.address for each in found if not each.address.startswith("127.")]
    return {
        **shell.environment,
        "PATH": f"{fakes}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "ADDRESS": [*addresses, "127.0.0.1"][0],
        "SLURM_JOB_ID": str(JOB),
        "SLURM_JOB_NODELIST": "one,two",
        "SLURM_CPUS_PER_TASK": "1",
        "SLURM_GPUS_ON_NODE": "0",
    }


class Job(subprocess.Popen):
    """The script of the page, in a session of its own; nothing of it is left afterwards."""

    def __init__(self, shell, environment):
        super().__init__(
            ["bash", str(FILES / "slurm.sh"), "tiny.yaml"],
            cwd=shell.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def __exit__(self, *raised):
        for each in [self, *left()]:
            each.kill()
        super().__exit__(*raised)


def left():
    """Processes of Ray that belong to the job."""
    found = [each for each in psutil.process_iter(["cmdline"]) if each.info["cmdline"]]
    return [each for each in found if f"/tmp/ray-{JOB}" in " ".join(each.info["cmdline"])]


@pytest.fixture(scope="module")
def kubernetes():
    """The documents of the file for KubeRay, by kind."""
    return {each["kind"]: each for each in yaml.safe_load_all((FILES / "kuberay.yaml").read_text())}


def test_the_ray_job_is_whole(kubernetes):
    assert {kind: each["apiVersion"] for kind, each in kubernetes.items()} == {
        "Secret": "v1",
        "PersistentVolumeClaim": "v1",
        "RayJob": "ray.io/v1",
    }
    spec = kubernetes["RayJob"]["spec"]
    assert set(spec) <= {
        "entrypoint",
        "submissionMode",
        "backoffLimit",
        "shutdownAfterJobFinishes",
        "ttlSecondsAfterFinished",
        "rayClusterSpec",
    }
    cluster = spec["rayClusterSpec"]
    assert f"ray=={cluster['rayVersion']}" in (ROOT / "constraints.txt").read_text()
    assert f"FROM rayproject/ray:{cluster['rayVersion']}-" in (FILES / "Dockerfile").read_text()
    assert cluster["authOptions"] == {"mode": "token"}
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    assert {group.get("groupName") for group in groups} == {None, "gpus"}
    for group in groups:
        check_pod(group["template"]["spec"], kubernetes)
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
    for group in cluster["workerGroupSpecs"]:
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]


def check_pod(pod, kubernetes):
    """What a pod refers to is there, and amounts are such."""
    volumes = {each["name"]: each["persistentVolumeClaim"]["claimName"] for each in pod.get("volumes", ())}
    assert set(volumes.values()) <= {kubernetes["PersistentVolumeClaim"]["metadata"]["name"]}
    for container in pod["containers"]:
        assert set(container) <= {"name", "image", "envFrom", "ports", "resources", "volumeMounts"}
        assert {mount["name"] for mount in container.get("volumeMounts", ())} <= set(volumes)
        secrets = {each["secretRef"]["name"] for each in container["envFrom"]}
        assert secrets == {kubernetes["Secret"]["metadata"]["name"]}
        for amount in container["resources"]["limits"].values():
            assert re.fullmatch(r"\d+(Gi)?", amount)


def test_the_command_of_the_ray_job_is_one(kubernetes):
    spec = kubernetes["RayJob"]["spec"]
    program, verb, *arguments = shlex.split(spec["entrypoint"])
    options = {
        name for each in commands_by_name(typer.main.get_command(app))[verb].params for name in each.opts
    }
    assert program == "haltsweep"
    given = {each for each in arguments if each.startswith("--")}
    assert {"--continue", "--checkpoints", "--address"} <= given <= options
    head = spec["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    mounts = {mount["mountPath"] for mount in head["volumeMounts"]}
    assert arguments[arguments.index("--runs") + 1] in mounts, "the sweep outlives the pod"


def test_every_option_of_ray_that_is_named_exists():
    from ray.scripts.scripts import start

    known = {name for each in start.params for name in (*each.opts, *each.secondary_opts)}
    text = PAGE.read_text() + (FILES / "slurm.sh").read_text().replace("\\\n", " ")
    named = {
        option
        for line in re.findall(r"ray start (?!haltsweep)[^`\n|]*", text)
        for option in re.findall(r"--[a-z-]+", line)
    }
    assert {"--head", "--address", "--min-worker-port"} <= named <= known
