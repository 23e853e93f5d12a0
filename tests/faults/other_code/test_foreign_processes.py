"""Processes of other containers and users, and sessions that wake up after their sweep was taken over."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from orchestrator.errors import StoreError
from orchestrator.identity import SweepFolder
from orchestrator.ledger.events import Event, EventKind
from orchestrator.ledger.store import Ledger
from tests.support.processes.commands import PATIENCE_S, Shell, answer, tree, wait_for
from tests.support.processes.temporary import short_folder

CONTAINER = ("unshare", "--mount", "--pid", "--fork")
OWN_PROC = 'mount -t proc {options} proc /proc && exec "$@"'

OWNER = """
import sys, tempfile
from orchestrator.files.abandoned_folders import CHECKPOINTS, RAY, clear_abandoned
from trainables.process_identity import process_label
from trainables.protocol import TRIALS
clear_abandoned()
for prefix in (CHECKPOINTS, RAY, TRIALS):
    print(tempfile.mkdtemp(prefix=f"{prefix}{process_label()}-"), flush=True)
if sys.argv[1] == "wait":
    input()
"""
"""Clears away what dead processes left, then makes folders as a launch and its trials do."""

STRANGER = """
import os, subprocess, sys, time
from pathlib import Path
from orchestrator.execution.sweep.removal import remove_rows
from orchestrator.identity import SweepFolder
from orchestrator.ledger.lease import Holder, LeaseHeldError
from orchestrator.ledger.store import Ledger
from trainables.process_identity import ProcessState, boot_id, process_start, this_process

folder = Path(sys.argv[1])
url = f"sqlite:///{folder / 'team.db'}"
owner = subprocess.Popen(["sleep", "60"])
here = this_process()
holder = Holder(here.host, owner.pid, here.boot_id, process_start(owner.pid), time.time())
with Ledger.open(url, "sweep", create=True, clock=lambda: time.time() - 600) as ledger:
    ledger.claim(holder)
for each in (folder, *folder.iterdir()):
    each.chmod(0o777)
user = os.fork()
if not user:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
    print(holder.state().name)
    try:
        remove_rows(url, SweepFolder(folder / "sweep"))
        print("removed")
    except LeaseHeldError as refusal:
        print("refused")
    sys.stdout.flush()
    os._exit(0)
os.waitpid(user, 0)
owner.kill()
owner.wait()
print(holder.state().name)
"""
"""A holder of root's that is late, judged by another user of the same database."""


@pytest.fixture(scope="module", autouse=True)
def containers() -> None:
    """Skips where this user may not make namespaces of process ids."""
    allowed = subprocess.run([*CONTAINER, "sh", "-c", OWN_PROC.format(options=""), "sh", "true"], check=False)
    if allowed.returncode:
        pytest.skip("this user may not make a namespace of process ids")


def in_container(code: str, arguments: Sequence[str], options: str = "") -> list[str]:
    """The command that runs Python code in a namespace of process ids with a /proc of its own."""
    mounted = ["sh", "-c", OWN_PROC.format(options=options), "sh"]
    return [*CONTAINER, *mounted, sys.executable, "-c", code, *arguments]


@contextmanager
def owner_in_container(environment: dict[str, str]) -> Iterator[list[Path]]:
    """Folders of a living process of a container."""
    command = in_container(OWNER, ["wait"])
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        yield [Path(process.stdout.readline().strip()) for _ in range(3)]
        process.communicate("\n", timeout=PATIENCE_S)
        assert process.returncode == 0


def owner_here(environment: dict[str, str]) -> list[Path]:
    """Folders of a process of no container, which has ended."""
    command = [sys.executable, "-c", OWNER, "leave"]
    shown = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment, timeout=PATIENCE_S
    )
    return [Path(line) for line in shown.stdout.splitlines()]


@pytest.mark.slow
def test_containers_with_one_temporary_folder_leave_each_other_alone() -> None:
    with short_folder() as temporary:
        environment = {**os.environ, "TMPDIR": str(temporary), "PYTHONDONTWRITEBYTECODE": "1"}
        with owner_in_container(environment) as first, owner_in_container(environment) as second:
            ours = owner_here(environment)
            assert len({*first, *second, *ours}) == 9
            assert all(each.is_dir() for each in (*first, *second, *ours))
        # All of them are dead now. Only those of this container can be known to be.
        owner_here(environment)
        assert all(each.is_dir() for each in (*first, *second))
        assert not any(each.exists() for each in ours)


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(
    ("options", "judged"),
    [("", ["ALIVE", "refused", "DEAD"]), ("-o hidepid=2", ["UNKNOWN", "refused", "DEAD"])],
    ids=["shown", "hidden"],
)
def test_a_living_process_of_another_user_is_never_dead(
    tmp_path: Path, options: str, judged: list[str]
) -> None:
    command = in_container(STRANGER, [str(tmp_path)], options)
    for parent in tmp_path.parents:
        if parent.name.startswith(("pytest-", "popen-")):
            parent.chmod(0o755)
    shown = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
    assert shown.stdout.split() == judged, shown.stderr


def events(shell: Shell) -> list[Event]:
    """All events of the sweep so far."""
    try:
        with Ledger.open(SweepFolder(shell.folder / "runs" / "tiny").ledger_url, "tiny") as ledger:
            return list(ledger.events())
    except StoreError:  # the launch has not made it yet
        return []


def begun(shell: Shell) -> bool:
    """Whether a trial of the sweep has begun."""
    return any(event.kind is EventKind.STARTED for event in events(shell))


@pytest.mark.slow
def test_a_stopped_session_that_wakes_up_after_a_take_over_writes_nothing(tmp_path: Path) -> None:
    shell = Shell.at(tmp_path)
    with shell.started("launch", "tiny.yaml", "--profile", "short", "--driver", "inline") as asleep:
        wait_for(lambda: begun(shell), asleep)
        asleep.send_signal(signal.SIGSTOP)
        held = shell.run("resume", "tiny")
        assert held.code == 2
        assert "--take-over" in held.err
        taken = shell.run("resume", "tiny", "--take-over")
        assert taken.code == 0, taken.err
        assert f"taken over from session 1, process {asleep.pid} on host" in " ".join(taken.err.split())
        assert "trials: 4 finished" in taken.out
        before, written = tree(shell.folder / "runs"), events(shell)
        asleep.send_signal(signal.SIGCONT)
        woken = answer(asleep)
    assert woken.code == 1
    assert "only the newest holder may write to sweep 'tiny'" in " ".join(woken.err.split())
    assert "Traceback" not in woken.err
    assert events(shell) == written
    after = tree(shell.folder / "runs")
    changed = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    # Whoever closes a database of SQLite last moves its log into it; the events are compared above.
    assert not {name for name in changed if not name.startswith("tiny/ledger.db")}
