"""Links, pipes and folders where launches clear away: nobody is stopped by them, nor are they touched.

On Ray too: see tests/e2e/test_commands.py.
"""

import os

import pytest

from orchestrator.files.abandoned_folders import RAY
from tests.support.processes.commands import Shell
from tests.support.processes.temporary import short_folder
from trainables.process_identity import origin

GONE = 99_999_999
"""No process has this id."""


@pytest.fixture
def temporary():
    """A temporary folder that launches take: its path is short enough for sockets."""
    with short_folder() as made:
        yield made


def scatter(folder, *prefixes, suffix="-x"):
    """Everything that is no folder of ours, under names that a killed process of ours would have left."""
    folder.mkdir(parents=True, exist_ok=True)
    precious = folder / "precious"
    (precious / "below").mkdir(parents=True, exist_ok=True)
    (precious / "file").write_text("kept")
    made = []
    for prefix in prefixes:
        names = [folder / f"{prefix}{GONE}{number}-{origin()}aa{suffix}" for number in range(5)]
        names[0].symlink_to(precious)
        names[1].symlink_to("nowhere")
        names[2].symlink_to(names[2].name)
        names[3].write_text("a file")
        os.mkfifo(names[4])
        made += names
    return precious, made


def assert_untouched(precious, made):
    assert (precious / "file").read_text() == "kept"
    assert (precious / "below").is_dir()
    assert all(os.path.lexists(each) for each in made)


def launched_among_foreign_names(shell, runs, temporary, *arguments):
    """They do not stop a launch, which clears away what a killed one left.

    What it says, and those in `temporary`.
    """
    places = [
        scatter(temporary, RAY, "haltsweep-rehearsal-"),
        scatter(runs, ".tiny.launching-", ".tiny.removing-", ".mlflow.db-"),
    ]
    left = temporary / f"{RAY}{GONE}-{origin()}aa-ours"
    (left / "session").mkdir(parents=True)
    (left / "link").symlink_to(places[0][0])
    done = shell.run("launch", "tiny.yaml", *arguments, TMPDIR=str(temporary))
    assert done.code == 0, done.err
    for place in places:
        assert_untouched(*place)
    assert not left.exists(), "what a killed launch left is cleared away by the next"
    return done, places[0]


@pytest.mark.slow
@pytest.mark.longest
def test_a_launch_data_projections_and_rehearsals_among_foreign_names(tmp_path, temporary):
    shell = Shell.at(tmp_path, tracked=True)
    short = ("--profile", "short", "--driver", "inline")
    done, left = launched_among_foreign_names(shell, shell.folder / "runs", temporary, *short)
    assert "trials: 4 finished" in done.out
    sweep = shell.folder / "runs" / "tiny"
    (arrow, *_) = sorted((shell.folder / "data").rglob("*.arrow"))
    places = [
        scatter(sweep, ".records.parquet.", ".projections.json.", ".tracking.json."),
        scatter(arrow.parent, f".{arrow.stem}.", suffix=".tmp"),
    ]
    folder = arrow.parent / f".{arrow.stem}.x.tmp"
    folder.mkdir()
    arrow.unlink()
    done = shell.run("launch", "tiny.yaml", "--profile", "short", "name=again", "--driver", "inline")
    assert done.code == 0, done.err
    assert shell.run("sync", "tiny").code == 0
    assert shell.run("check", "tiny.yaml", TMPDIR=str(temporary)).code == 0
    assert folder.is_dir()
    assert_untouched(*left)
    for precious, made in places:
        # A file under the name of one of ours cannot be told from ours.
        assert_untouched(precious, [each for each in made if f"{GONE}3" not in each.name])
