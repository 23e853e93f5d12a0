"""Launches ignore foreign links, pipes and folders in the places that launches clean, and do not touch them.
tests/e2e/test_commands.py tests the same on Ray."""

import os

import pytest

from orchestrator.files.abandoned_folders import RAY
from tests.support.processes.commands import Shell
from tests.support.processes.temporary import short_folder
from trainables.process_identity import origin

DEAD_PID = 99_999_999
"""No process has this process id."""


@pytest.fixture
def temporary():
    """Create a temporary folder whose path is short enough for sockets."""
    with short_folder() as folder:
        yield folder


def scatter_foreign_files(folder, *prefixes, suffix="-x"):
    """Create links, files and a pipe under names that a killed launch would have left."""
    folder.mkdir(parents=True, exist_ok=True)
    precious = folder / "precious"
    (precious / "below").mkdir(parents=True, exist_ok=True)
    (precious / "file").write_text("content")
    paths = []
    for prefix in prefixes:
        names = [folder / f"{prefix}{DEAD_PID}{number}-{origin()}aa{suffix}" for number in range(5)]
        names[0].symlink_to(precious)
        names[1].symlink_to("nowhere")
        names[2].symlink_to(names[2].name)
        names[3].write_text("a file")
        os.mkfifo(names[4])
        paths += names
    return precious, paths


def assert_untouched(precious, paths):
    assert (precious / "file").read_text() == "content"
    assert (precious / "below").is_dir()
    assert all(os.path.lexists(path) for path in paths)


def launch_among_foreign_names(shell, runs, temporary, *arguments):
    """Launch a sweep among foreign files, and assert that only leftovers of a killed launch are removed.

    Return the answer of the launch and the foreign files in `temporary`.
    """
    places = [
        scatter_foreign_files(temporary, RAY, "haltsweep-rehearsal-"),
        scatter_foreign_files(runs, ".tiny.launching-", ".tiny.removing-", ".mlflow.db-"),
    ]
    leftover = temporary / f"{RAY}{DEAD_PID}-{origin()}aa-ours"
    (leftover / "session").mkdir(parents=True)
    (leftover / "link").symlink_to(places[0][0])
    answer = shell.run("launch", "tiny.yaml", *arguments, TMPDIR=str(temporary))
    assert answer.code == 0, answer.err
    for place in places:
        assert_untouched(*place)
    assert not leftover.exists(), "the next launch must remove leftovers of a killed launch"
    return answer, places[0]


@pytest.mark.slow
@pytest.mark.longest
def test_commands_work_among_foreign_names(tmp_path, temporary):
    shell = Shell.at(tmp_path, tracked=True)
    short_options = ("--profile", "short", "--driver", "inline")
    answer, foreign_files = launch_among_foreign_names(
        shell, shell.folder / "runs", temporary, *short_options
    )
    assert "trials: 4 finished" in answer.out
    sweep = shell.folder / "runs" / "tiny"
    (arrow, *_) = sorted((shell.folder / "data").rglob("*.arrow"))
    places = [
        scatter_foreign_files(sweep, ".records.parquet.", ".projections.json.", ".tracking.json."),
        scatter_foreign_files(arrow.parent, f".{arrow.stem}.", suffix=".tmp"),
    ]
    folder = arrow.parent / f".{arrow.stem}.x.tmp"
    folder.mkdir()
    arrow.unlink()
    answer = shell.run("launch", "tiny.yaml", "--profile", "short", "name=again", "--driver", "inline")
    assert answer.code == 0, answer.err
    assert shell.run("sync", "tiny").code == 0
    assert shell.run("check", "tiny.yaml", TMPDIR=str(temporary)).code == 0
    assert folder.is_dir()
    assert_untouched(*foreign_files)
    for precious, paths in places:
        # Commands cannot distinguish a regular file under such a name from a leftover.
        assert_untouched(precious, [path for path in paths if f"{DEAD_PID}3" not in path.name])
