"""`haltsweep data build`, `show` and `verify`, as people use and misuse them."""

import errno
import json
import os
import re
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from matplotlib import image

from orchestrator.cli.display import console
from orchestrator.cli.display import data_progress as building
from orchestrator.cli.display.data_progress import ProgressBars
from orchestrator.cli.display.data_views import (
    LABELS_SHOWN,
    TEXT_SHOWN,
    label_text,
    shorten_example,
    sparkline,
)
from orchestrator.cli.task_data import STEPS_UNKNOWN, subjects
from orchestrator.errors import InputError
from tests.support.processes.commands import TINY, Shell, answer
from tests.support.processes.logs import Clock
from trainables.data.progress import report, report_waiting
from trainables.locks import locked

SMALL = ("trees=400", "near_iid_examples=20", "valid_examples=20", "test_examples=10", "length_ranges=[]")
ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def spec(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY)


def files(folder):
    return {path.name for path in folder.rglob("*") if path.is_file()}


class TestBuild:
    def test_a_task_with_its_settings(self, haltsweep, tmp_path):
        shown = haltsweep("data", "build", "listops", *SMALL, "--split", "valid", "--split", "near-iid")
        assert (shown.code, shown.err) == (0, "")
        line = r"listops/{0}: built in \S+ s: 20 examples, [\d,]+ bytes, \w{{32}}, data/listops/.*{0}.arrow"
        lines = shown.out.splitlines()
        assert [
            bool(re.fullmatch(line.format(name), text))
            for name, text in zip(("valid", "near-iid"), lines, strict=True)
        ] == [True, True]
        again = haltsweep("data", "build", "listops", *SMALL, "--split", "valid")
        assert again.out == re.sub(r"built in \S+ s", "exists", lines[0]) + "\n"

    def test_a_spec_stands_for_what_launch_would_build(self, haltsweep, tmp_path):
        shown = haltsweep("data", "build", "tiny.yaml", "--data", "d")
        assert [text.partition(":")[0] for text in shown.out.splitlines()] == [
            "listops/train",
            "listops/valid",
            "listops/near-iid",
        ]
        assert ": exists:" not in shown.out
        again = haltsweep("data", "build", "tiny.yaml", "--profile", "short", "--data", "d")
        assert again.out.count(": exists:") == 3

    def test_what_is_streamed_is_left_out_or_refused(self, haltsweep):
        few = ("test_examples=5", "valid_examples=5", "test_lengths=[30]")
        assert haltsweep("data", "build", "algorithms", *few).out.count("built in") == 2
        shown = haltsweep("data", "build", "algorithms", *few, "--split", "train")
        assert shown.code == 2
        assert "--split train: algorithms draws new examples" in shown.err

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (("lstops",), "no task named 'lstops'. Did you mean 'listops'? Known: "),
            (("lstops",), "; or name a spec file"),
            (("nowhere.yaml",), "a spec must be there to be read, and nowhere.yaml is not"),
            (("listops", "tres=1"), "task.tres: no field task.tres. Did you mean 'trees'?"),
            (("listops", "trees=x"), "task.trees: must be a valid integer, got the text 'x'"),
            (("listops", "trees"), "an override must be key=value, got 'trees'"),
            (("listops", "trees.x=1"), "override 'trees.x=1': trees.x does not exist: trees is not there"),
            (("listops", "--profile", "small"), "--profile goes with a spec, got the task 'listops'"),
            (("listops", "--split", "tain"), "listops has no split 'tain'. Known: train, valid, near-iid"),
            (("tiny.yaml", "--profile", "shrt"), "Did you mean 'short'?"),
            (("tiny.yaml", "baseline.task.tres=1"), "no field task.tres"),
            (("listops", "--data", "tiny.yaml"), "datasets need a folder"),
            (
                ("logical_inference", "folder=nowhere"),
                "the split train of logical_inference cannot be built: folder must hold the files train0 .. ",
            ),
        ],
    )
    def test_bad_input_is_told_before_anything_is_written(self, haltsweep, tmp_path, arguments, expected):
        answer = haltsweep("data", "build", *arguments)
        assert (answer.code, answer.out) == (2, "")
        assert expected in answer.err
        assert files(tmp_path) == {"tiny.yaml"}

    def test_a_malformed_file_leaves_nothing_half_built(self, haltsweep, tmp_path):
        folder = tmp_path / "originals"
        folder.mkdir()
        for part in ("train", "test"):
            for number in range(13):
                (folder / f"{part}{number}").write_text("=\ta\ta\n")
        (folder / "train3").write_text("=\ta\ta\n=\ta\n")
        shown = haltsweep("data", "build", "logical_inference", "folder=originals")
        assert shown.code == 2
        assert "originals/train3, line 2: expected a relation" in shown.err
        assert {name for name in files(tmp_path / "data") if not name.endswith(".lock")} == set()

    def test_a_full_disk_is_told_and_leaves_nothing(self, haltsweep, tmp_path, monkeypatch):
        def full(_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            shown = haltsweep("data", "build", "listops", *SMALL)
        assert (shown.code, shown.out) == (1, "")
        assert "free space that can be written, got No space left on device" in shown.err
        assert files(tmp_path / "data") == {"train.lock"}
        assert haltsweep("data", "build", "listops", *SMALL).code == 0

    def test_a_folder_that_cannot_be_written_is_told(self, haltsweep, tmp_path, monkeypatch):
        def refused(*_, **__):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

        monkeypatch.setattr(Path, "mkdir", refused)  # a superuser may write everywhere
        shown = haltsweep("data", "build", "listops", *SMALL, "--data", "locked")
        assert shown.code == 1
        assert re.search(r"got Permission denied for locked/listops/.*another --data", shown.err)

    def test_an_interrupt_leaves_nothing_half_built(self, haltsweep, tmp_path, monkeypatch):
        def interrupted(_):
            raise KeyboardInterrupt

        monkeypatch.setattr(os, "fsync", interrupted)
        shown = haltsweep("data", "build", "listops", *SMALL)
        assert (shown.code, shown.out, shown.err) == (130, "", "interrupted\n")
        assert files(tmp_path / "data") == {"train.lock"}


LARGER = ("trees=30000", "--split", "train")


@pytest.fixture
def shell(tmp_path):
    return Shell.at(tmp_path)


def build(shell, folder):
    return shell.started("data", "build", "listops", *LARGER, "--data", str(folder))


def answered(process):
    shown = answer(process)
    assert shown.code == 0, shown.err
    return shown.out.split()[-2].rstrip(",")


@pytest.mark.slow
def test_two_processes_at_once_and_killed_ones_end_with_one_good_copy(tmp_path, shell, haltsweep):
    """Killed after so much of the time that a build takes, three times; then two build at once."""
    begin = time.monotonic()
    with build(shell, tmp_path / "straight") as process:
        straight = answered(process)
    took = time.monotonic() - begin
    for share in (0.8, 0.9, 1.0):
        with build(shell, tmp_path / "d") as process:
            time.sleep(took * share)
            process.kill()
            process.communicate()
    with build(shell, tmp_path / "d") as one, build(shell, tmp_path / "d") as other:
        assert [answered(process) for process in (one, other)] == [straight, straight]
    assert files(tmp_path / "d") == {"train.arrow", "train.json", "train.lock"}
    verified = json.loads(haltsweep("data", "verify", str(tmp_path / "d"), "--json").out)
    assert [(each["verdict"], each["content_hash"]) for each in verified] == [("whole", straight)]


@pytest.mark.slow
def test_waiting_for_another_builder_is_reported(tmp_path, shell):
    with build(shell, tmp_path / "first") as process:
        answered(process)
    home = next((tmp_path / "first/listops").iterdir())
    lock = tmp_path / "d/listops" / home.name / "train.lock"
    lock.parent.mkdir(parents=True)
    with ExitStack() as running:
        with locked(lock, 0.0, print):
            process = running.enter_context(build(shell, tmp_path / "d"))
            assert process.stderr.readline().startswith(f"waiting for process {os.getpid()} on ")
        answered(process)


class TestShow:
    def test_examples_with_answers_lengths_labels_floor_and_padding(self, haltsweep):
        shown = haltsweep("data", "show", "listops", *SMALL, "--split", "train", "--examples", "3")
        assert (shown.code, shown.err) == (0, "")
        assert re.search(
            r"│ listops/train │ train │ +\d+ │ .* │ +\d\d\.\d% │ random [\d.]+%, bucketed [\d.]+% │",
            shown.out,
        )
        assert re.search(r"^lengths \d+ [▁▂▃▄▅▆▇█ ]+ \d+$", shown.out, re.MULTILINE)
        assert re.search(r"^labels  0: [\d.]+%, 1: ", shown.out, re.MULTILINE)
        assert len(re.findall(r"^(\d|\[(MIN|MAX|MED|SM) .*\])\n  = \d$", shown.out, re.MULTILINE)) == 3

    def test_answers_of_positions_stand_behind_their_tokens(self, haltsweep):
        few = ("problem=copy", "test_examples=5", "valid_examples=5", "test_lengths=[20]")
        shown = haltsweep("data", "show", "algorithms", *few, "--split", "length-20", "--examples", "1")
        (text, bits) = re.search(r"^((?:[01] ){20})>->([01]) #->", shown.out, re.MULTILINE).groups()
        assert text.split()[0] == bits
        assert f"  = {text}#\n" in shown.out

    def test_labels_have_the_names_that_the_task_knows(self, haltsweep):
        shown = haltsweep("data", "show", "logical_inference", "pairs=10000", "--split", "operators-3")
        assert "labels  # independent: " in shown.out
        assert re.search(
            r"<sep> .*\n  = [#=<>^|v] (independent|equivalent|entails|is entailed|neg|alt|cov)", shown.out
        )

    def test_written_answers_are_words_with_lengths_of_their_own(self, haltsweep, tmp_path):
        few = ("train_examples=60", "valid_examples=10", "test_examples=10", "--figure", "f.png")
        shown = haltsweep("data", "show", "transduction", *few, "--split", "train", "--examples", "1")
        (text, answer) = re.search(r"^(s\d.*)\n  = (s\d.*)$", shown.out, re.MULTILINE).groups()
        assert text.split() == answer.split()[::-1]
        assert re.search(r"^answers 3 [▁▂▃▄▅▆▇█ ]+ 12$", shown.out, re.MULTILINE)
        assert "labels  s0: " in shown.out
        assert (tmp_path / "f.png").exists()

    def test_pictures_are_drawn(self, haltsweep):
        shown = haltsweep("data", "show", "digits", "--split", "valid", "--examples", "1")
        (drawn,) = re.findall(r"((?:^[ .:=+*#%@-]{16}\n){8})  = \d$", shown.out, re.MULTILINE)
        assert {line[0::2] == line[1::2] for line in drawn.splitlines()} == {True}

    def test_a_streamed_split_shows_a_batch(self, haltsweep):
        shown = haltsweep("data", "show", "algorithms", "--split", "train")
        assert f"algorithms/train, a batch of 512 drawn for step {STEPS_UNKNOWN - 1:,} of seed 0" in shown.out
        assert re.search(r"│ algorithms/train │ train │ +endless │ endless │ .* │ drawn [\d.]+% │", shown.out)

    def test_json_has_it_all(self, haltsweep):
        shown = haltsweep("data", "show", "tiny.yaml", "--json", "--examples", "1")
        found = json.loads(shown.out)
        assert [each["split"] for each in found] == ["train", "valid", "near-iid"]
        train = found[0]
        assert train["examples"] == sum(train["lengths"].values()) == sum(train["labels"].values())
        assert train["tokens"] == sum(int(length) * count for length, count in train["lengths"].items())
        assert train["floor"] == max(train["labels"].values()) / train["examples"]
        assert set(train["padding"]) == {"batch_size", "random", "bucketed"}
        assert train["padding"]["batch_size"] == 8
        assert 0 <= train["padding"]["bucketed"] < train["padding"]["random"] < 1
        assert set(found[1]["padding"]) == {"batch_size", "sorted"}
        assert [set(example) for example in train["shown"]] == [{"text", "answer", "length"}]

    def test_batches_of_so_many_tokens(self, haltsweep):
        shown = haltsweep(
            *("data", "show", "tiny.yaml", "--split", "train", "--json"),
            *("baseline.train.batch_tokens=64", "baseline.train.order=bucketed"),
        )
        assert set(json.loads(shown.out)[0]["padding"]) == {"batch_size", "by tokens"}

    def test_the_figure_is_an_image(self, haltsweep, tmp_path):
        shown = haltsweep("data", "show", "listops", *SMALL, "--figure", "f.png", "--split", "train")
        assert shown.err == "figure: f.png\n"
        assert image.imread(tmp_path / "f.png").shape[1] == 1350

    @pytest.mark.parametrize("place", ["f.pdf", "no/such/folder/f.png"])
    def test_a_figure_that_cannot_be_is_refused_first(self, haltsweep, tmp_path, place):
        shown = haltsweep("data", "show", "listops", *SMALL, "--figure", place)
        assert (shown.code, shown.out) == (2, "")
        assert f"--figure must be a .png file in an existing folder, got {place}" in shown.err
        assert files(tmp_path) == {"tiny.yaml"}


class TestVerify:
    @pytest.fixture
    def built(self, haltsweep, tmp_path):
        haltsweep("data", "build", "listops", *SMALL, "--split", "valid", "--split", "near-iid")
        return {path.stem: path for path in tmp_path.rglob("*.arrow")}

    def test_whole_data(self, haltsweep, built):
        shown = haltsweep("data", "verify")
        assert shown.code == 0
        assert shown.out.splitlines()[-1] == "data: 2 whole"
        assert re.search(r"^whole: data/.*valid\.arrow: [\d,]+ bytes, [0-9a-f]{32}$", shown.out, re.MULTILINE)

    def test_damage_is_told_and_removed_when_asked(self, haltsweep, built):
        content = bytearray(built["valid"].read_bytes())
        content[len(content) // 2] ^= 1
        built["valid"].write_bytes(content)
        built["near-iid"].with_suffix(".json").unlink()
        shown = haltsweep("data", "verify", "data")
        assert shown.code == 1
        assert "damaged: " in shown.out
        assert shown.out.splitlines()[-1] == "data: 1 damaged, 1 unsealed"
        found = json.loads(haltsweep("data", "verify", "--json").out)
        assert {(each["verdict"], each["removed"]) for each in found} == {
            ("damaged", False),
            ("unsealed", False),
        }
        shown = haltsweep("data", "verify", "--remove")
        assert shown.code == 0
        assert "damaged, removed: " in shown.out
        assert haltsweep("data", "verify").out == "data: no data\n"
        assert haltsweep("data", "build", "listops", *SMALL, "--split", "valid").out.count("built in") == 1

    def test_folders_where_files_should_be_end_nothing(self, haltsweep, built):
        """Locks that are folders, and a seal: all else is looked at, and what can be deleted is."""
        for path in built.values():
            path.with_suffix(".lock").unlink(missing_ok=True)
            path.with_suffix(".lock").mkdir()
        built["valid"].with_suffix(".json").unlink()
        shown = haltsweep("data", "verify", "--remove")
        assert shown.code == 0
        assert "unsealed, removed: " in shown.out
        assert "whole: " in shown.out
        shown = haltsweep("data", "build", "listops", *SMALL, "--split", "valid")
        assert shown.code == 1
        assert "got Is a directory for " in shown.err
        assert "valid.lock" in shown.err

    def test_what_cannot_be_deleted_is_told(self, haltsweep, built, monkeypatch):
        built["valid"].with_suffix(".json").unlink()
        built["near-iid"].with_suffix(".json").unlink()
        unlink = Path.unlink

        def refused(path, missing_ok=False):
            if path.suffix == ".arrow" and path.stem == "near-iid":
                raise PermissionError(1, "Operation not permitted", str(path))
            unlink(path, missing_ok)

        monkeypatch.setattr(Path, "unlink", refused)
        shown = haltsweep("data", "verify", "--remove")
        assert shown.code == 1
        assert "near-iid.arrow could not be deleted: Operation not permitted" in shown.err
        assert not built["valid"].exists()

    def test_what_is_not_ours_is_no_fault(self, haltsweep, built, tmp_path):
        (tmp_path / "data/notes.txt").write_text("mine")
        shown = haltsweep("data", "verify", "--remove")
        assert shown.code == 0
        assert shown.out.splitlines()[-1] == "data: 1 unknown, 2 whole"
        assert (tmp_path / "data/notes.txt").exists()

    def test_a_folder_that_is_not_there_is_refused(self, haltsweep):
        shown = haltsweep("data", "verify", "nowhere")
        assert shown.code == 2
        assert "nowhere does not exist" in shown.err


class TestBars:
    def test_nothing_is_told_of_short_work_and_little_of_long(self, capsys):
        console.err.cache_clear()
        clock = Clock()
        with ProgressBars(clock=clock) as bars, bars.part("listops/train"):
            for done in range(1, 41):
                clock.now += 0.5
                report("trees", done * 1000, 40_000)
        output = capsys.readouterr()
        assert output.out == ""
        assert output.err == "listops/train: 10% of 40,000 trees\nlistops/train: 60% of 40,000 trees\n"

    def test_who_is_waited_for_is_told(self, capsys):
        console.err.cache_clear()
        with ProgressBars() as bars, bars.part("listops/train"):
            assert report_waiting("waiting for process 1 on here")
        assert capsys.readouterr().err == "waiting for process 1 on here\n"

    def test_a_terminal_has_a_bar(self, monkeypatch, tmp_path):
        from rich.console import Console

        with (tmp_path / "screen").open("w+") as file:
            terminal = Console(file=file, force_terminal=True, width=120, legacy_windows=False)
            monkeypatch.setattr(building, "err", lambda: terminal)
            with ProgressBars() as bars, bars.part("listops/[train]"):
                report("trees", 1, 4)
                bars._bars.refresh()
        screen = re.sub(r"\x1b.*?[mlKhA]", "", (tmp_path / "screen").read_text())
        assert re.search(r"listops/\[train\]: trees .* 25%", screen)


def test_help_imports_no_slow_modules():
    code = (
        "import sys; from orchestrator.cli.main import run\n"
        "try: run(['data', '--help'])\n"
        "except SystemExit: pass\n"
        "print({'torch', 'ray', 'mlflow', 'optuna', 'pyarrow', 'numpy'} & set(sys.modules), file=sys.stderr)"
    )
    shown = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert shown.stderr == "set()\n"
    assert "verify" in shown.stdout


def test_a_spec_may_have_the_name_of_a_task(haltsweep, tmp_path):
    """And a spec has no suffix that it must have."""
    shutil.copy(tmp_path / "tiny.yaml", tmp_path / "listops")
    assert [each.batch_size for each in subjects("listops", (), None)] == [32]
    shutil.move(tmp_path / "listops", tmp_path / "study")
    (found,) = subjects("study", (), None)
    assert (found.name, found.batch_size, found.steps) == ("listops", 8, 4)
    assert [info.name for info in found.splits] == ["train", "valid", "near-iid"]
    (found,) = subjects("study", (), None, ["lra"])
    assert [info.name for info in found.splits] == ["lra"]
    with pytest.raises(InputError, match="listops has no split 'x'"):
        subjects("study", (), None, ["x"])


def test_small_histograms():
    import numpy as np

    assert sparkline(np.asarray([5])) == "█"
    assert sparkline(np.asarray([1, 1, 1, 1, 1, 1, 1, 1, 3])) == "█ ▁"
    assert len(sparkline(np.arange(1000))) == 40
    assert label_text({"a": 3, "b": 1}) == "a: 75.0%, b: 25.0%"
    many = {str(number): number + 1 for number in range(LABELS_SHOWN + 1000)}
    assert label_text(many).startswith("1011: 0.2%")
    assert label_text(many).endswith(", and 1,000 more")


def test_long_examples_are_shortened():
    assert shorten_example("x" * TEXT_SHOWN) == "x" * TEXT_SHOWN
    assert shorten_example("x" * (TEXT_SHOWN + 1234)).endswith("x ... and 1,234 characters more")
