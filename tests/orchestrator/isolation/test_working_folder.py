"""A trial reads files of the launch folder by relative paths, and writes private copies."""

import errno
import os
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.isolation import working_folder
from orchestrator.isolation.child_server import ChildServer, settings_here
from orchestrator.isolation.messages import ChildEnded
from orchestrator.isolation.working_folder import (
    MAX_COPIED_BYTES,
    MAX_COPIED_FILE_BYTES,
    LaunchFiles,
    SharedFileWritten,
    WorkingFolder,
    matching_files,
)
from tests.orchestrator.isolation.conftest import PATIENCE_S
from tests.support.processes import children
from tests.support.processes.children import Work, order
from tests.support.processes.folders import content

LARGE = MAX_COPIED_FILE_BYTES + 1


def test_files_of_the_launch_folder_are_read_by_relative_paths(trial):
    code = """
from pathlib import Path
names = "config.txt", "data/train.txt", "results/old.txt", ".cache/vocabulary.txt"
result = [Path(name).read_text() for name in names], Path("data/deep/rows.bin").stat().st_size
"""
    assert trial(code) == (["small", "train", "old", "words"], LARGE)


def test_new_files_are_private_to_the_trial(trial, launch):
    earlier_content = content(launch)
    code = """
from pathlib import Path
result = Path("results/mine.txt").exists() or Path("model.pt").exists() or Path("made").exists()
Path("results/mine.txt").write_text("1")
Path("model.pt").write_text("2")
Path("made/deep").mkdir(parents=True)
Path("made/deep/file.txt").write_text("3")
with open("results/mine.txt", "a") as file:
    file.write("more")
assert Path("results/mine.txt").read_text() == "1more"
"""
    assert trial(code) is False
    assert trial(code) is False, "the next trial must not find files of the first"
    assert content(launch) == earlier_content


WRITES = {
    "open": "open('{0}', 'w').write('new')",
    "append": "open('{0}', 'a').write('more')",
    "replace": "open('new', 'w').write('new'); import os; os.replace('new', '{0}')",
}


@pytest.mark.parametrize(
    "code",
    [
        "import os; os.system('echo new > results/old.txt')",
        "open('.cache/new.txt', 'w').write('new')",
        "import os; os.remove('.cache/vocabulary.txt')",
    ],
    ids=["program", "new file", "removal"],
)
def test_trial_changes_no_launch_file(trial, launch, code):
    earlier_content = content(launch)
    assert trial(code) is None
    assert content(launch) == earlier_content


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("config.txt", "open"),
        ("data/deep/rows.bin", "append"),
        ("data/deep/rows.bin", "replace"),
        (".cache/vocabulary.txt", "open"),
    ],
)
def test_trial_overwrites_a_private_copy_of_a_launch_file(trial, launch, name, operation):
    earlier_content = content(launch)
    code = WRITES[operation].format(name) + f"\nresult = open({name!r}).read()"
    old_text = (launch / name).read_text()
    expected = old_text + "more" if operation == "append" else "new"
    assert trial(code) == expected
    assert content(launch) == earlier_content


@pytest.mark.parametrize(
    ("name", "operation"), [("results/old.txt", "open"), ("data/deep/rows.bin", "replace")]
)
def test_trial_that_reads_and_overwrites_a_launch_file_ends_with_its_name(trial, launch, name, operation):
    """Some scripts resume from a checkpoint if one exists."""
    earlier_content = content(launch)
    error = trial(f"open({name!r}).read(); " + WRITES[operation].format(name))
    assert isinstance(error, SharedFileWritten)
    assert name in str(error)
    assert content(launch) == earlier_content
    write = WRITES[operation].format(name)
    assert trial(f"{write}; open({name!r}).read(); {write}") is None, (
        "the trial may overwrite a file that it created"
    )


def test_report_file_of_the_launch_folder_is_hidden_from_trials(trial, launch):
    (launch / "metrics.jsonl").write_text("{}")
    assert trial("import os; result = os.path.lexists('metrics.jsonl')") is False


def test_script_that_changes_to_its_folder_writes_private_files(trial, launch):
    """Some scripts start with os.chdir(os.path.dirname(__file__))."""
    (launch / "package").mkdir()
    (launch / "package" / "job.py").write_text("LR = 0.1")
    earlier_content = content(launch)
    code = f"""
import os
os.chdir({str(launch / "results")!r})
open("new.log", "w").write("new")
assert open("new.log").read() == "new"
os.chdir({str(launch / "package")!r})
assert open("job.py").read() == "LR = 0.1"
"""
    assert trial(code) is None
    assert content(launch) == earlier_content


def test_trial_may_delete_launch_files_privately(trial, launch):
    """Some code starts with an empty folder of results."""
    earlier_content = content(launch)
    code = """
import os, shutil
shutil.rmtree("results")
os.makedirs("results")
open("results/new.txt", "w").write("1")
os.remove("data/deep/rows.bin")
os.remove("config.txt")
"""
    assert trial(code) is None
    assert trial("import os; result = sorted(os.listdir('results'))") == ["old.txt"]
    assert content(launch) == earlier_content


def test_launch_files_are_listed_as_folders_copies_or_links(launch):
    launch_files = LaunchFiles.of(launch)
    assert set(launch_files.folders) == {"data", "data/deep", "results", "runs"}
    assert set(launch_files.copied) == {"config.txt", "data/train.txt", "results/old.txt"}
    linked = {"data/deep/rows.bin", ".cache", "venv", "runs/earlier", "node_modules"}
    assert set(_links_inside(launch_files)) == linked


def _links_inside(launch_files):
    return [path for path in launch_files.linked if not path.startswith("..")]


def test_files_next_to_the_launch_folder_are_read_by_relative_paths(trial, launch, tmp_path):
    """Some scripts read data from ../data."""
    for name in ("data/raw.txt", "data/deep/rows.txt", "models/old.pt", "notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    earlier_content = content(tmp_path)
    code = f"""
import os
from pathlib import Path
for name in ("data/raw.txt", "data/deep/rows.txt", "notes.txt"):
    assert (Path("..") / name).read_text() == name
    assert (Path("../..") / {tmp_path.name!r} / name).read_text() == name
assert not os.path.exists("../models/mine.pt") and not os.path.exists("../made")
Path("../models/mine.pt").write_text("1")
Path("../made").mkdir()
Path("../made/mine.pt").write_text("1")
"""
    for _ in range(2):
        assert trial(code) is None
    for name in ("models/old.pt", "data/deep/rows.txt", "data/deep/new.txt"):
        assert trial(f"open('../{name}', 'w').write('new')") is None
    later_content = content(tmp_path)
    assert {
        name: text for name, text in later_content.items() if not name.startswith("trials/")
    } == earlier_content


def test_links_and_special_files_of_the_launch_folder(launch, tmp_path):
    other_folder = tmp_path / "elsewhere"
    other_folder.mkdir()
    (other_folder / "file.txt").write_text("1")
    (launch / "linked-folder").symlink_to(other_folder)
    (launch / "linked-file").symlink_to(other_folder / "file.txt")
    (launch / "dangling").symlink_to("missing")
    (launch / "loop").symlink_to(launch)
    (launch / "itself").symlink_to("itself")
    os.mkfifo(launch / "pipe")
    launch_files = LaunchFiles.of(launch)
    assert {"linked-folder", "loop"} <= set(launch_files.linked)
    assert "linked-file" in launch_files.copied
    all_names = {*launch_files.folders, *launch_files.copied, *launch_files.linked}
    assert not {"dangling", "itself", "pipe"} & all_names
    assert not [name for name in all_names if name.startswith("loop/")]


def test_total_size_of_copies_is_bounded(tmp_path):
    content = b"x" * MAX_COPIED_FILE_BYTES
    for number in range(MAX_COPIED_BYTES // MAX_COPIED_FILE_BYTES + 2):
        (tmp_path / f"{number:02}").write_bytes(content)
    launch_files = LaunchFiles.of(tmp_path)
    assert (len(launch_files.copied), len(_links_inside(launch_files))) == (
        MAX_COPIED_BYTES // MAX_COPIED_FILE_BYTES,
        2,
    )


def test_parent_of_a_large_subfolder_is_linked_as_a_whole(request, launch, monkeypatch):
    """Path.rglob and os.walk follow no links, and would find only files of the small subfolder."""
    monkeypatch.setattr(working_folder, "MAX_ENTRIES", 40)
    for name in ("cat", "dog"):
        (launch / "images" / name).mkdir(parents=True)
        for number in range(15):
            (launch / "images" / name / f"{number}.png").touch()
    code = """
import glob, os
from pathlib import Path
result = [
    len(list(Path("images").rglob("*.png"))),
    sum(len(files) for _, _, files in os.walk("images")),
    len(glob.glob("images/**/*.png", recursive=True)),
]
"""
    assert "images" in LaunchFiles.of(launch).linked
    trial = request.getfixturevalue("trial")  # its server lists the folder when it starts
    assert trial(code) == [30, 30, 30]


def test_files_deleted_since_the_start_of_the_session_are_omitted(launch, tmp_path):
    launch_files = LaunchFiles.of(launch)
    (launch / "config.txt").unlink()
    (launch / "data" / "deep" / "rows.bin").unlink()
    folder = WorkingFolder(launch_files, "private", tmp_path / "scratch")
    folder._fill()
    folder.check_writes()
    assert not (folder.path / "config.txt").exists()
    assert (folder.path / "data" / "train.txt").read_text() == "train"


def test_files_without_room_for_a_copy_are_linked(launch, tmp_path, monkeypatch):
    def copy_part(_source, target):
        Path(target).write_text("tr")
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(working_folder.shutil, "copy2", copy_part)
    folder = WorkingFolder(LaunchFiles.of(launch), "private", tmp_path / "scratch")
    folder._fill()
    assert (folder.path / "data" / "train.txt").read_text() == "train"


class SharedTrials:
    """Two simultaneous trials that write to the launch folder itself."""

    def __init__(self, launch, tmp_path):
        self.scratch = tmp_path / "trials"
        self.servers = [ChildServer(settings_here(children.MODULE, launch, ())) for _ in range(2)]

    def run(self, slot, code, **options):
        server = self.servers[slot]
        scratch = self.scratch / str(slot)
        server.start(order(children.work, Work(code, scratch, mode="shared", waits=True, **options)))
        answer = server.receive(PATIENCE_S)
        assert not isinstance(answer, ChildEnded), "the code fails"
        return answer

    def end(self, slot):
        self.servers[slot].send("end")
        assert self.servers[slot].receive(PATIENCE_S) == ChildEnded(0)

    def close(self):
        for server in self.servers:
            server.close()


@pytest.fixture
def shared(launch, tmp_path):
    with closing(SharedTrials(launch, tmp_path)) as shared:
        yield shared


def test_shared_file_is_written_by_one_trial_at_a_time(shared, launch):
    assert (
        shared.run(0, "open('results/old.txt', 'a').write('1'); open('results/old.txt', 'a').write('2')")
        is None
    )
    error = shared.run(1, "open('results/old.txt', 'a').write('3')")
    assert isinstance(error, SharedFileWritten)
    assert "results/old.txt" in str(error)
    assert (launch / "results" / "old.txt").read_text() == "old12"
    assert shared.run(1, "open('results/other.txt', 'w').write('3')") is None
    shared.end(1)
    shared.end(0)
    assert shared.run(1, "open('results/old.txt', 'a').write('4')") is None, (
        "the file must be free after the first trial"
    )
    shared.end(1)
    assert (launch / "results" / "old.txt").read_text() == "old124"


def test_killed_writer_releases_a_shared_file(shared):
    shared.run(0, "open('new.txt', 'w').write('1')")
    shared.servers[0].kill()
    assert shared.run(1, "open('new.txt', 'w').write('2')") is None


def test_shared_folder_allows_reading_and_writes_to_exempt_folders(shared, launch):
    data = launch / "data"
    code = "open('config.txt').read(); open('data/made.txt', 'w').write('1')"
    assert shared.run(0, code, exempt=(data,)) is None
    assert shared.run(1, code, exempt=(data,)) is None


def test_files_to_keep_match_a_pattern(tmp_path):
    files_folder, work_folder = tmp_path / "files", tmp_path / "work"
    for folder in (files_folder, work_folder):
        (folder / "deep").mkdir(parents=True)
    (files_folder / "model.pt").touch()
    (work_folder / "deep" / "model.pt").touch()
    (work_folder / "notes.txt").touch()
    (work_folder / "link.pt").symlink_to(files_folder / "model.pt")
    matches = [
        (path, str(name)) for path, name in matching_files(["*.pt", "deep/*"], [files_folder, work_folder])
    ]
    assert matches == [
        (files_folder / "model.pt", "model.pt"),
        (work_folder / "deep" / "model.pt", "deep/model.pt"),
    ]
    assert len(list(matching_files(["**/*.pt"], [files_folder, work_folder]))) == 2
