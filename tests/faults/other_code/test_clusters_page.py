"""The example files for clusters run as far as one machine allows, and their statements are true."""

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
from tests.faults.other_code.test_machines import count_events, events
from tests.support.processes.commands import PATIENCE_S, Shell, commands_by_name, wait_for
from tests.support.training_code.travelling import TRAINABLE, write_code

SLOW_SPEC = f"""
name: tiny
question: Does a sweep survive the end of its job?
trainable: {TRAINABLE}
baseline: {{lr: 0.1, steps: 40, pause: 0.05}}
arms: {{longer: {{why: more steps, set: {{steps: 41}}}}}}
confirm: {{seeds: [101], splits: [test]}}
resources: {{cpus: 1, checkpoint_seconds: 0.5}}
"""
"""A spec with slow trials: trials remain when a signal comes after the first checkpoint.

Its trials load no PyTorch, because eleven processes run.
"""
FILES = ROOT / "orchestrator" / "clusters"
PAGE = ROOT / "docs" / "how-to" / "several-machines.md"
JOB = 4711
FAKES = {
    # SLURM's `scontrol` prints the names of the job's nodes; `srun` runs a command on a node, which is this
    # machine.
    "scontrol": 'tr , "\\n" <<< "$3"',
    "srun": 'while [[ $1 = --* ]]; do shift; done; [[ $1 != hostname ]] || set echo "$ADDRESS"; exec "$@"',
}


@pytest.mark.slow
def test_slurm_job_stops_at_a_signal_and_the_sweep_resumes(tmp_path):
    shell = Shell.at(tmp_path, SLOW_SPEC)
    write_code(shell.folder)
    environment = slurm_environment(shell, tmp_path)
    with SlurmJob(shell, environment) as process:
        wait_for(lambda: count_events(shell, EventKind.CHECKPOINTED), process)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, err
    assert not job_processes(), "processes of the job must end with the job"
    result = shell.run("resume", "tiny", "--driver", "inline")
    assert result.code == 0, result.err
    check_log(events(shell), read_launched_plan(SweepFolder(shell.folder / "runs" / "tiny")))


def slurm_environment(shell, tmp_path):
    """Return the environment that SLURM gives to the script."""
    fakes = tmp_path / "bin"
    fakes.mkdir()
    for name, body in FAKES.items():
        (fakes / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (fakes / name).chmod(0o755)
    interfaces = [
        interface for group in psutil.net_if_addrs().values() for interface in group if interface.family == 2
    ]
    addresses = [interface.address for interface in interfaces if not interface.address.startswith("127.")]
    return {
        **shell.environment,
        "PATH": f"{fakes}:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "ADDRESS": [*addresses, "127.0.0.1"][0],
        "SLURM_JOB_ID": str(JOB),
        "SLURM_JOB_NODELIST": "one,two",
        "SLURM_CPUS_PER_TASK": "1",
        "SLURM_GPUS_ON_NODE": "0",
    }


class SlurmJob(subprocess.Popen):
    """Run the script of the page in a separate session; kill its processes afterwards."""

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

    def __exit__(self, *exception):
        for process in [self, *job_processes()]:
            process.kill()
        super().__exit__(*exception)


def job_processes():
    """List Ray's processes that belong to the job."""
    processes = [process for process in psutil.process_iter(["cmdline"]) if process.info["cmdline"]]
    return [process for process in processes if f"/tmp/ray-{JOB}" in " ".join(process.info["cmdline"])]


@pytest.fixture(scope="module")
def kubernetes():
    """Load the documents of the file for KubeRay, by kind."""
    return {
        document["kind"]: document for document in yaml.safe_load_all((FILES / "kuberay.yaml").read_text())
    }


def test_ray_job_is_complete(kubernetes):
    cluster = kubernetes["RayJob"]["spec"]["rayClusterSpec"]
    assert f"ray=={cluster['rayVersion']}" in (ROOT / "constraints.txt").read_text()
    assert f"FROM rayproject/ray:{cluster['rayVersion']}-" in (FILES / "Dockerfile").read_text()
    assert cluster["authOptions"] == {"mode": "token"}
    for group in [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]:
        check_pod(group["template"]["spec"], kubernetes)


def check_pod(pod, kubernetes):
    """Assert that a pod refers only to existing objects, of the file."""
    volumes = {
        volume["name"]: volume["persistentVolumeClaim"]["claimName"] for volume in pod.get("volumes", ())
    }
    assert set(volumes.values()) <= {kubernetes["PersistentVolumeClaim"]["metadata"]["name"]}
    for container in pod["containers"]:
        assert {mount["name"] for mount in container.get("volumeMounts", ())} <= set(volumes)
        secrets = {source["secretRef"]["name"] for source in container["envFrom"]}
        assert secrets == {kubernetes["Secret"]["metadata"]["name"]}


def test_ray_job_runs_a_valid_haltsweep_command(kubernetes):
    spec = kubernetes["RayJob"]["spec"]
    program, verb, *arguments = shlex.split(spec["entrypoint"])
    options = {
        name for param in commands_by_name(typer.main.get_command(app))[verb].params for name in param.opts
    }
    assert program == "haltsweep"
    options_used = {argument for argument in arguments if argument.startswith("--")}
    assert {"--continue", "--checkpoints", "--address"} <= options_used <= options
    head = spec["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"][0]
    mounts = {mount["mountPath"] for mount in head["volumeMounts"]}
    assert arguments[arguments.index("--runs") + 1] in mounts, "the sweep outlives the pod"


def test_documented_ray_options_exist():
    from ray.scripts.scripts import start

    valid_options = {name for param in start.params for name in (*param.opts, *param.secondary_opts)}
    text = PAGE.read_text() + (FILES / "slurm.sh").read_text().replace("\\\n", " ")
    documented = {
        option
        for line in re.findall(r"ray start (?!haltsweep)[^`\n|]*", text)
        for option in re.findall(r"--[a-z-]+", line)
    }
    assert {"--head", "--address", "--min-worker-port"} <= documented <= valid_options
