"""A Ray cluster on this machine whose nodes act as machines: each can hide folders from its workers."""

import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from orchestrator.execution.ray.environment import RAY_VARIABLES

RAY = [sys.executable, "-P", "-m", "ray.scripts.scripts"]
TIMEOUT_S = 300.0
COVER_SCRIPT = 'for folder in "${@:2}"; do mount -t tmpfs none "$folder" || exit 99; done; exec $1'
"""Shell script for a mount namespace: cover the folders by empty ones, then run the command."""


def can_mount() -> bool:
    """Return whether this process may mount in a namespace that no other process sees."""
    command = ["unshare", "-m", "bash", "-c", COVER_SCRIPT, "bash", "true", tempfile.gettempdir()]
    return bool(shutil.which("unshare")) and not subprocess.run(command, check=False).returncode


needs_namespaces = pytest.mark.skipif(
    not can_mount(), reason="mount namespaces need the right to mount, which root has"
)


@dataclass
class Machines:
    """A head and nodes that tests add and kill."""

    environment: Mapping[str, str]
    temporary: Path
    port: int
    token: str
    nodes: list[psutil.Popen] = field(default_factory=list)

    @property
    def address(self) -> str:
        """Address of the head."""
        return f"127.0.0.1:{self.port}"

    def join(self, *, cpus: int = 1, without: Sequence[Path] = (), head: bool = False) -> psutil.Popen:
        """Start a node that sees empty folders in place of the folders `without`."""
        command = [*RAY, "start", "--block", "--disable-usage-stats", f"--num-cpus={cpus}"]
        command += ["--object-store-memory=80000000", "--num-gpus=0"]
        if head:
            command += ["--head", f"--port={self.port}", "--include-dashboard=false"]
            command += [f"--temp-dir={self.temporary}"]
        else:
            command += [f"--address={self.address}"]
        if without:
            cover_command = ["unshare", "-m", "bash", "-c", COVER_SCRIPT, "bash", " ".join(command)]
            command = cover_command + [str(folder) for folder in without]
        with (self.temporary / f"node-{len(self.nodes)}.txt").open("wb") as output:
            process = psutil.Popen(
                command,
                stdout=output,
                stderr=output,
                env={
                    **RAY_VARIABLES,
                    **self.environment,
                    "RAY_AUTH_MODE": "token",
                    "RAY_AUTH_TOKEN": self.token,
                },
                cwd="/",
                start_new_session=True,
            )
        self.nodes.append(process)
        return process

    def lose(self, node: psutil.Popen) -> None:
        """Kill all processes of the node at once, as when a machine loses its power."""
        with suppress(psutil.NoSuchProcess):
            family = [node, *node.children(recursive=True)]
            for process in family:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(family, timeout=TIMEOUT_S)


def free_port() -> int:
    """Return a port on which no process listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def machines(environment: Mapping[str, str], *, head_cpus: int = 1) -> Iterator[Machines]:
    """Start a cluster with a token; its head sees all folders of this process."""
    temporary = Path(tempfile.mkdtemp(prefix="hs-", dir="/tmp"))
    cluster = Machines(environment, temporary, free_port(), secrets.token_hex(32))
    try:
        head = cluster.join(cpus=head_cpus, head=True)
        deadline = time.monotonic() + TIMEOUT_S
        while "Ray runtime started" not in (temporary / "node-0.txt").read_text():
            assert head.poll() is None, (temporary / "node-0.txt").read_text()
            assert time.monotonic() < deadline, "the head must start in time"
            time.sleep(0.2)
        yield cluster
    finally:
        for node in reversed(cluster.nodes):
            cluster.lose(node)
        for process in psutil.process_iter(["cmdline"]):
            if str(temporary) in " ".join(process.info["cmdline"] or ()):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        shutil.rmtree(temporary, ignore_errors=True)
