"""A trial reads the files of the launch folder by relative paths; what it writes there is its own."""

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from orchestrator.isolation import working_folder
from orchestrator.isolation.child_server import ChildServer, settings_here
from orchestrator.isolation.messages import ChildEnded
from orchestrator.isolation.working_folder import (
    ALL_COPIED_BYTES,
    COPIED_BYTES,
    LaunchFiles,
    SharedFileWritten,
    WorkingFolder,
    matching_files,
)
from tests.orchestrator.isolation.conftest import PATIENCE_S
from tests.support.processes import children
from tests.support.processes.children import Work, order
from tests.support.processes.folders import content

LARGE = COPIED_BYTES + 1


def test_files_of_the_launch_folder_are_read_by_relative_paths(trial):
    code = """
from pathlib import Path
names = "config.txt", "data/train.txt", "results/old.txt", ".cache/vocabulary.txt"
result = [Path(name).read_text() for name in names], Path("data/deep/rows.bin").stat().st_size
"""
    assert trial(code) == (["small", "train", "old", "words"], LARGE)


def test_new_files_are_the_trial_s_own(trial, launch):
    before = content(launch)
    code = """
from pathlib import Path
result = Path("results/mine.txt").exists() or Path("model.pt").exists() or Path("made").exists()
Path("results/mine.txt").write_text("1")
Path("model.pt").write_text("2")
Path("made/deep").mkdir(parents=True)
Path("made/deep/file.txt").write_text("3")
with open("results/mine.txt", "a") as file:
    file.write("again")
assert Path("results/mine.txt").read_text() == "1again"
"""
    assert trial(code) is False
    assert trial(code) is False, "the next trial finds nothing of the first"
    assert content(launch) == before


WRITES = {
    "open": "open('{0}', 'w').write('new')",
    "append": "open('{0}', 'a').write('more')",
    "replace": "open('new', 'w').write('new'); import os; os.replace('new', '{0}')",
    "shell": "import subprocess; subprocess.run(['/bin/sh', '-c', 'echo new > {0}'], check=True)",
}


NAMES = ["config.txt", "data/deep/rows.bin", ".cache/vocabulary.txt", "venv/lib/module.py"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("how", ["open", "append", "replace"])
def test_a_trial_overwrites_its_own_version_of_a_launch_file(trial, launch, name, how):
    before = content(launch)
    code = WRITES[how].format(name) + f"\nresult = open({name!r}).read()"
    old = (launch / name).read_text()
    expected = old + "more" if how == "append" else "new"
    for _ in range(2):
        assert trial(code) == expected
    assert content(launch) == before


def test_a_program_overwrites_the_trial_s_copy_of_a_small_file(trial, launch):
    before = content(launch)
    assert trial(WRITES["shell"].format("results/old.txt")) is None
    assert content(launch) == before


@pytest.mark.parametrize("name", ["results/old.txt", "data/deep/rows.bin"])
@pytest.mark.parametrize("how", ["open", "replace"])
def test_a_trial_that_may_continue_an_earlier_run_ends_with_the_name_of_the_file(trial, launch, name, how):
    """As scripts do that resume from a checkpoint if there is one."""
    before = content(launch)
    error = trial(f"open({name!r}).read(); " + WRITES[how].format(name))
    assert isinstance(error, SharedFileWritten)
    assert name in str(error)
    assert content(launch) == before
    write = WRITES[how].format(name)
    assert trial(f"{write}; open({name!r}).read(); {write}") is None, "the trial's own file"


def test_a_report_file_of_the_launch_folder_is_not_part_of_a_trial(trial, launch):
    (launch / "metrics.jsonl").write_text("{}")
    assert trial("import os; result = os.path.lexists('metrics.jsonl')") is False


def test_new_files_in_linked_folders_are_private(trial, launch):
    before = content(launch)
    assert trial("open('.cache/new.txt', 'w').write('new')") is None
    assert content(launch) == before


@pytest.mark.parametrize("place", ["", "results", "package"])
def test_a_script_that_goes_to_its_own_folder_stays_private(trial, launch, place):
    """As scripts do that begin with os.chdir(os.path.dirname(__file__))."""
    (launch / "package").mkdir()
    (launch / "package" / "job.py").write_text("LR = 0.1")
    before = content(launch)
    code = f"""
import os
os.chdir({str(launch / place)!r})
open("new.log", "w").write("new")
assert open("new.log").read() == "new"
os.chdir({str(launch / "package")!r})
assert open("job.py").read() == "LR = 0.1"
"""
    assert trial(code) is None
    assert content(launch) == before


def test_a_trial_may_delete_what_it_finds(trial, launch):
    """As code does that begins with an empty folder of results."""
    before = content(launch)
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
    assert content(launch) == before


def test_caches_of_tools_are_written_by_all_trials(trial, launch):
    for name in (".cache/vocabulary.txt", "node_modules/file.txt"):
        for trial_id in "ab":
            assert trial(f"open({str(launch / name)!r}, 'w').write('1')", trial=trial_id) is None


def test_reading_leaves_a_file_unwritten(trial):
    code = """
import os
with open("data/deep/rows.bin", "rb") as file:
    file.read()
os.stat("config.txt")
fd = os.open("config.txt", os.O_RDONLY); os.read(fd, 1); os.close(fd)
result = "read"
"""
    assert trial(code) == "read"


def test_what_is_listed(launch):
    listed = LaunchFiles.of(launch)
    assert set(listed.folders) == {"data", "data/deep", "results", "runs"}
    assert set(listed.copied) == {"config.txt", "data/train.txt", "results/old.txt"}
    linked = {"data/deep/rows.bin", ".cache", "venv", "runs/earlier", "node_modules"}
    assert set(_inside(listed)) == linked


def _inside(listed):
    return [path for path in listed.linked if not path.startswith("..")]


def test_files_beside_the_launch_folder_are_read_by_relative_paths(trial, launch, tmp_path):
    """As scripts do that keep their data in ../data."""
    for name in ("data/raw.txt", "data/deep/rows.txt", "models/.gitkeep", "models/old.pt", "notes.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    before = content(tmp_path)
    code = f"""
import os
from pathlib import Path
for name in ("data/raw.txt", "data/deep/rows.txt", "notes.txt"):
    assert (Path("..") / name).read_text() == name
    assert (Path("../..") / {tmp_path.name!r} / name).read_text() == name
assert Path("../{launch.name}/config.txt").read_text() == "small"
assert len(list(Path("../data").rglob("*.txt"))) == 2
assert not os.path.exists("../models/mine.pt") and not os.path.exists("../made")
Path("../models/mine.pt").write_text("1")
Path("../made").mkdir()
Path("../made/mine.pt").write_text("1")
"""
    for _ in range(2):
        assert trial(code) is None
    for name in ("models/old.pt", "data/raw.txt", "data/deep/rows.txt", "data/deep/new.txt"):
        assert trial(f"open('../{name}', 'w').write('new')") is None
        assert not (tmp_path / name).exists() or (tmp_path / name).read_text() == name
    assert trial(f"open({str(tmp_path / 'models' / 'old.pt')!r}, 'w').write('by somebody else')") is None
    (tmp_path / "models" / "old.pt").write_text("models/old.pt")
    after = content(tmp_path)
    assert {name: text for name, text in after.items() if not name.startswith("trials/")} == before


def test_the_parent_of_a_launch_folder_may_hold_many_files(tmp_path, monkeypatch):
    monkeypatch.setattr(working_folder, "MOST_ENTRIES", 5)
    for number in range(10):
        (tmp_path / f"{number}.txt").touch()
    (tmp_path / "launch").mkdir()
    assert LaunchFiles.of(tmp_path / "launch").linked == []


def test_links_and_odd_files_of_the_launch_folder(launch, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file.txt").write_text("1")
    (launch / "linked-folder").symlink_to(elsewhere)
    (launch / "linked-file").symlink_to(elsewhere / "file.txt")
    (launch / "dangling").symlink_to("nowhere")
    (launch / "loop").symlink_to(launch)
    (launch / "itself").symlink_to("itself")
    os.mkfifo(launch / "pipe")
    listed = LaunchFiles.of(launch)
    assert {"linked-folder", "loop"} <= set(listed.linked)
    assert "linked-file" in listed.copied
    everything = {*listed.folders, *listed.copied, *listed.linked}
    assert not {"dangling", "itself", "pipe"} & everything
    assert not [name for name in everything if name.startswith("loop/")]


def test_links_to_themselves_beside_the_launch_folder(trial, launch, tmp_path):
    """A folder next to the launch folder holds anything, and trials run."""
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "itself").symlink_to("itself")
    (tmp_path / "beside" / "file.txt").write_text("1")
    assert trial("result = open('../beside/file.txt').read()") == "1"


def test_a_tree_deeper_than_python_s_stack_is_linked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for _ in range(sys.getrecursionlimit() + 100):
        Path("d").mkdir()
        os.chdir("d")
    listed = LaunchFiles.of(tmp_path)
    assert listed.folders + listed.linked
    os.chdir(tmp_path)
    subprocess.run(["rm", "-r", "d"], check=True)


def test_a_file_that_cannot_be_copied_is_linked(launch, tmp_path, monkeypatch):
    def refuse(source, target):
        raise PermissionError(source)

    listed = LaunchFiles.of(launch)
    monkeypatch.setattr(working_folder.shutil, "copy2", refuse)
    folder = WorkingFolder(listed, "private", tmp_path / "scratch")
    folder._fill()
    folder.check_writes()
    assert (folder.path / "config.txt").is_symlink()


def test_a_launch_folder_that_is_gone_has_no_files(tmp_path):
    assert LaunchFiles.of(tmp_path / "nowhere") == LaunchFiles(tmp_path / "nowhere")


def test_what_copies_take_together_is_bounded(tmp_path):
    content = b"x" * COPIED_BYTES
    for number in range(ALL_COPIED_BYTES // COPIED_BYTES + 2):
        (tmp_path / f"{number:02}").write_bytes(content)
    listed = LaunchFiles.of(tmp_path)
    assert (len(listed.copied), len(_inside(listed))) == (ALL_COPIED_BYTES // COPIED_BYTES, 2)


def test_folders_of_many_files_are_linked_as_a_whole(trial, launch, monkeypatch):
    monkeypatch.setattr(working_folder, "MOST_ENTRIES", 20)
    (launch / "images").mkdir()
    for number in range(20):
        (launch / "images" / f"{number}.png").touch()
    listed = LaunchFiles.of(launch)
    assert "images" in listed.linked
    assert "results/old.txt" in listed.copied, "smaller folders are still the trial's own"
    assert not [name for name in (*listed.copied, *listed.folders) if name.startswith("images")]


def test_a_large_subfolder_is_linked_with_all_beside_it(trial, launch, monkeypatch):
    """Path.rglob and os.walk follow no links, and would find the files of the smaller folder only."""
    monkeypatch.setattr(working_folder, "MOST_ENTRIES", 40)
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
    assert trial(code) == [30, 30, 30]


def test_a_launch_folder_of_many_files_is_linked(tmp_path, monkeypatch):
    monkeypatch.setattr(working_folder, "MOST_ENTRIES", 5)
    (tmp_path / "folder").mkdir()
    for number in range(10):
        (tmp_path / f"{number}.txt").touch()
    listed = LaunchFiles.of(tmp_path)
    assert listed.copied == []
    assert sorted(_inside(listed)) == [*(f"{number}.txt" for number in range(10)), "folder"]


def test_files_deleted_since_the_session_began_are_left_out(launch, tmp_path):
    listed = LaunchFiles.of(launch)
    (launch / "config.txt").unlink()
    (launch / "data" / "deep" / "rows.bin").unlink()
    folder = WorkingFolder(listed, "private", tmp_path / "scratch")
    folder._fill()
    folder.check_writes()
    assert not (folder.path / "config.txt").exists()
    assert (folder.path / "data" / "train.txt").read_text() == "train"


class Shared:
    """Two trials at once that write to the launch folder itself."""

    def __init__(self, launch, tmp_path):
        self.scratch = tmp_path / "trials"
        self.servers = [ChildServer(settings_here(children.MODULE, launch, ())) for _ in range(2)]

    def run(self, number, code, **more):
        server = self.servers[number]
        scratch = self.scratch / str(number)
        server.start(order(children.work, Work(code, scratch, mode="shared", waits=True, **more)))
        answer = server.receive(PATIENCE_S)
        assert not isinstance(answer, ChildEnded), "the code fails"
        return answer

    def end(self, number):
        self.servers[number].send("end")
        assert self.servers[number].receive(PATIENCE_S) == ChildEnded(0)

    def close(self):
        for each in self.servers:
            each.close()


@pytest.fixture
def shared(launch, tmp_path):
    with closing(Shared(launch, tmp_path)) as shared:
        yield shared


def test_shared_a_file_is_written_by_one_trial_at_a_time(shared, launch):
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
    assert shared.run(1, "open('results/old.txt', 'a').write('4')") is None, "the first trial has ended"
    shared.end(1)
    assert (launch / "results" / "old.txt").read_text() == "old124"


def test_shared_a_killed_writer_is_in_nobody_s_way(shared):
    shared.run(0, "open('new.txt', 'w').write('1')")
    shared.servers[0].kill()
    assert shared.run(1, "open('new.txt', 'w').write('2')") is None


def test_shared_reading_and_exempt_folders_are_free(shared, launch):
    data = launch / "data"
    code = "open('config.txt').read(); open('data/made.txt', 'w').write('1')"
    assert shared.run(0, code, exempt=(data,)) is None
    assert shared.run(1, code, exempt=(data,)) is None


def test_kept_files_are_those_that_a_pattern_matches(tmp_path):
    first, second = tmp_path / "files", tmp_path / "work"
    for folder in (first, second):
        (folder / "deep").mkdir(parents=True)
    (first / "model.pt").touch()
    (second / "deep" / "model.pt").touch()
    (second / "notes.txt").touch()
    (second / "link.pt").symlink_to(first / "model.pt")
    found = [(path, str(name)) for path, name in matching_files(["*.pt", "deep/*"], [first, second])]
    assert found == [(first / "model.pt", "model.pt"), (second / "deep" / "model.pt", "deep/model.pt")]
    assert len(list(matching_files(["**/*.pt"], [first, second]))) == 2


def test_kept_files_are_not_those_of_linked_folders(tmp_path):
    work, launch = tmp_path / "work", tmp_path / "launch"
    for folder in (work, launch):
        folder.mkdir()
    (launch / "rows.csv").touch()
    (work / "data").symlink_to(launch)
    assert list(matching_files(["data/*"], [work])) == []
