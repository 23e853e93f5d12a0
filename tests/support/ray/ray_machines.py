"""A Ray cluster of several machines on this one: each node sees folders of its own, if told so."""

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

from orchestrator.execution.ray.environment import SETTINGS

RAY = [sys.executable, "-P", "-m", "ray.scripts.scripts"]
PATIENCE_S = 300.0
COVERED = 'for folder in "${@:2}"; do mount -t tmpfs none "$folder" || exit 99; done; exec $1'
"""Run by a shell in a namespace of its own: cover the folders, then be the command."""


def can_cover() -> bool:
    """Whether this machine lets us mount something that nobody else sees."""
    command = ["unshare", "-m", "bash", "-c", COVERED, "bash", "true", tempfile.gettempdir()]
    return bool(shutil.which("unshare")) and not subprocess.run(command, check=False).returncode


needs_namespaces = pytest.mark.skipif(
    not can_cover(), reason="mount namespaces need the right to mount, as root has"
)


@dataclass
class Machines:
    """A head and nodes that come and go."""

    environment: Mapping[str, str]
    temporary: Path
    port: int
    token: str
    nodes: list[psutil.Popen] = field(default_factory=list)

    @property
    def address(self) -> str:
        """That of the head."""
        return f"127.0.0.1:{self.port}"

    def join(self, *, cpus: int = 1, without: Sequence[Path] = (), head: bool = False) -> psutil.Popen:
        """A node that sees none of the files in the folders `without`, but empty folders in their place."""
        command = [*RAY, "start", "--block", "--disable-usage-stats", f"--num-cpus={cpus}"]
        command += ["--object-store-memory=80000000", "--num-gpus=0"]
        if head:
            command += ["--head", f"--port={self.port}", "--include-dashboard=false"]
            command += [f"--temp-dir={self.temporary}"]
        else:
            command += [f"--address={self.address}"]
        if without:
            covered = ["unshare", "-m", "bash", "-c", COVERED, "bash", " ".join(command)]
            command = covered + [str(folder) for folder in without]
        with (self.temporary / f"node-{len(self.nodes)}.txt").open("wb") as output:
            process = psutil.Popen(
                command,
                stdout=output,
                stderr=output,
                env={**SETTINGS, **self.environment, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token},
                cwd="/",
                start_new_session=True,
            )
        self.nodes.append(process)
        return process

    def lose(self, node: psutil.Popen) -> None:
        """All processes of the node are killed at once, as when a machine loses its power."""
        with suppress(psutil.NoSuchProcess):
            family = [node, *node.children(recursive=True)]
            for each in family:
                with suppress(psutil.NoSuchProcess):
                    each.kill()
            psutil.wait_procs(family, timeout=PATIENCE_S)


def free_port() -> int:
    """One that nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def machines(environment: Mapping[str, str], *, head_cpus: int = 1) -> Iterator[Machines]:
    """A cluster with a token, of a head that sees what this process sees."""
    temporary = Path(tempfile.mkdtemp(prefix="hs-", dir="/tmp"))
    made = Machines(environment, temporary, free_port(), secrets.token_hex(32))
    try:
        head = made.join(cpus=head_cpus, head=True)
        until = time.monotonic() + PATIENCE_S
        while "Ray runtime started" not in (temporary / "node-0.txt").read_text():
            assert head.poll() is None, (temporary / "node-0.txt").read_text()
            assert time.monotonic() < until, "the head must come up"
            time.sleep(0.2)
        yield made
    finally:
        for node in reversed(made.nodes):
            made.lose(node)
        for each in psutil.process_iter(["cmdline"]):
            if str(temporary) in " ".join(each.info["cmdline"] or ()):
                with suppress(psutil.NoSuchProcess):
                    each.kill()
        shutil.rmtree(temporary, ignore_errors=True)


def inside(node: psutil.Popen, path: Path) -> Path:
    """A path as a node sees it."""
    raylet = next(each for each in node.children(recursive=True) if each.name() == "raylet")
    return Path(f"/proc/{raylet.pid}/root") / path.relative_to("/")
