"""`haltsweep data build`, `show` and `verify`: results and refusals."""

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

SMALL_TASK = (
    "trees=400",
    "near_iid_examples=20",
    "valid_examples=20",
    "test_examples=10",
    "length_ranges=[]",
)
REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def spec(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY)


def file_names(folder):
    return {path.name for path in folder.rglob("*") if path.is_file()}


class TestBuild:
    def test_build_of_a_task_reports_each_split(self, haltsweep, tmp_path):
        result = haltsweep("data", "build", "listops", *SMALL_TASK, "--split", "valid", "--split", "near-iid")
        assert (result.code, result.err) == (0, "")
        line = r"listops/{0}: built in \S+ s: 20 examples, [\d,]+ bytes, \w{{32}}, data/listops/.*{0}.arrow"
        lines = result.out.splitlines()
        assert [
            bool(re.fullmatch(line.format(name), text))
            for name, text in zip(("valid", "near-iid"), lines, strict=True)
        ] == [True, True]
        second_result = haltsweep("data", "build", "listops", *SMALL_TASK, "--split", "valid")
        assert second_result.out == re.sub(r"built in \S+ s", "exists", lines[0]) + "\n"

    def test_build_of_a_spec_builds_the_data_of_a_launch(self, haltsweep, tmp_path):
        result = haltsweep("data", "build", "tiny.yaml", "--data", "d")
        assert [text.partition(":")[0] for text in result.out.splitlines()] == [
            "listops/train",
            "listops/valid",
            "listops/near-iid",
        ]
        assert ": exists:" not in result.out
        second_result = haltsweep("data", "build", "tiny.yaml", "--profile", "short", "--data", "d")
        assert second_result.out.count(": exists:") == 3

    def test_build_omits_or_refuses_streamed_splits(self, haltsweep):
        overrides = ("test_examples=5", "valid_examples=5", "test_lengths=[30]")
        assert haltsweep("data", "build", "algorithms", *overrides).out.count("built in") == 2
        result = haltsweep("data", "build", "algorithms", *overrides, "--split", "train")
        assert result.code == 2
        assert "--split train: algorithms" in result.err

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (("lstops",), "'listops'"),
            (("nowhere.yaml",), "nowhere.yaml"),
            (("listops", "tres=1"), "'trees'"),
            (("listops", "trees=x"), "task.trees: "),
            (("listops", "trees"), "'trees'"),
            (("listops", "trees.x=1"), "override 'trees.x=1': "),
            (("listops", "--profile", "small"), "--profile"),
            (("listops", "--split", "tain"), "'tain'"),
            (("tiny.yaml", "--profile", "shrt"), "'short'"),
            (("tiny.yaml", "baseline.task.tres=1"), "task.tres"),
            (("listops", "--data", "tiny.yaml"), "tiny.yaml is a file"),
            (("logical_inference", "folder=nowhere"), "train0 .. "),
        ],
    )
    def test_build_refuses_bad_input_before_it_writes_files(self, haltsweep, tmp_path, arguments, expected):
        result = haltsweep("data", "build", *arguments)
        assert (result.code, result.out) == (2, "")
        assert expected in result.err
        assert file_names(tmp_path) == {"tiny.yaml"}

    def test_malformed_source_file_leaves_no_partial_build(self, haltsweep, tmp_path):
        folder = tmp_path / "originals"
        folder.mkdir()
        for split in ("train", "test"):
            for number in range(13):
                (folder / f"{split}{number}").write_text("=\ta\ta\n")
        (folder / "train3").write_text("=\ta\ta\n=\ta\n")
        result = haltsweep("data", "build", "logical_inference", "folder=originals")
        assert result.code == 2
        assert "originals/train3, line 2" in result.err
        assert {name for name in file_names(tmp_path / "data") if not name.endswith(".lock")} == set()

    def test_full_disk_is_reported_and_leaves_no_files(self, haltsweep, tmp_path, monkeypatch):
        def raise_disk_full(_):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", raise_disk_full)
            result = haltsweep("data", "build", "listops", *SMALL_TASK)
        assert (result.code, result.out) == (1, "")
        assert "No space left on device" in result.err
        assert file_names(tmp_path / "data") == {"train.lock"}
        assert haltsweep("data", "build", "listops", *SMALL_TASK).code == 0

    def test_unwritable_folder_is_reported(self, haltsweep, tmp_path, monkeypatch):
        def refuse_access(*_, **__):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

        monkeypatch.setattr(
            Path, "mkdir", refuse_access
        )  # the tests may run as a superuser, who may write everywhere
        result = haltsweep("data", "build", "listops", *SMALL_TASK, "--data", "locked")
        assert result.code == 1
        assert re.search(r"got Permission denied for locked/listops/.*another --data", result.err)

    def test_interrupt_leaves_no_partial_build(self, haltsweep, tmp_path, monkeypatch):
        def interrupt(_):
            raise KeyboardInterrupt

        monkeypatch.setattr(os, "fsync", interrupt)
        result = haltsweep("data", "build", "listops", *SMALL_TASK)
        assert (result.code, result.out, result.err) == (130, "", "interrupted\n")
        assert file_names(tmp_path / "data") == {"train.lock"}


LARGE_TASK = ("trees=30000", "--split", "train")


@pytest.fixture
def shell(tmp_path):
    return Shell.at(tmp_path)


def start_build(shell, folder):
    return shell.started("data", "build", "listops", *LARGE_TASK, "--data", str(folder))


def wait_for_digest(process):
    result = answer(process)
    assert result.code == 0, result.err
    return result.out.split()[-2].rstrip(",")


@pytest.mark.slow
def test_killed_and_concurrent_builds_leave_one_intact_copy(tmp_path, shell, haltsweep):
    """Kill two builds late in their course, then start two builds at once."""
    start = time.monotonic()
    with start_build(shell, tmp_path / "straight") as process:
        expected_digest = wait_for_digest(process)
    duration = time.monotonic() - start
    for share in (0.8, 1.0):
        with start_build(shell, tmp_path / "d") as process:
            time.sleep(duration * share)
            process.kill()
            process.communicate()
    with (
        start_build(shell, tmp_path / "d") as first_process,
        start_build(shell, tmp_path / "d") as second_process,
    ):
        assert [wait_for_digest(process) for process in (first_process, second_process)] == [
            expected_digest,
            expected_digest,
        ]
    assert file_names(tmp_path / "d") == {"train.arrow", "train.json", "train.lock"}
    report = json.loads(haltsweep("data", "verify", str(tmp_path / "d"), "--json").out)
    assert [(row["verdict"], row["content_hash"]) for row in report] == [("whole", expected_digest)]


@pytest.mark.slow
def test_waiting_for_another_builder_is_reported(tmp_path, shell):
    with start_build(shell, tmp_path / "first") as process:
        wait_for_digest(process)
    task_folder = next((tmp_path / "first/listops").iterdir())
    lock = tmp_path / "d/listops" / task_folder.name / "train.lock"
    lock.parent.mkdir(parents=True)
    with ExitStack() as stack:
        with locked(lock, 0.0, print):
            process = stack.enter_context(start_build(shell, tmp_path / "d"))
            assert process.stderr.readline().startswith(f"waiting for process {os.getpid()} on ")
        wait_for_digest(process)


class TestShow:
    def test_show_prints_statistics_and_examples(self, haltsweep):
        result = haltsweep("data", "show", "listops", *SMALL_TASK, "--split", "train", "--examples", "3")
        assert (result.code, result.err) == (0, "")
        assert re.search(
            r"│ listops/train │ train │ +\d+ │ .* │ +\d\d\.\d% │ random [\d.]+%, bucketed [\d.]+% │",
            result.out,
        )
        assert re.search(r"^lengths \d+ [▁▂▃▄▅▆▇█ ]+ \d+$", result.out, re.MULTILINE)
        assert re.search(r"^labels  0: [\d.]+%, 1: ", result.out, re.MULTILINE)
        assert len(re.findall(r"^(\d|\[(MIN|MAX|MED|SM) .*\])\n  = \d$", result.out, re.MULTILINE)) == 3

    def test_show_prints_position_answers_after_their_tokens(self, haltsweep):
        overrides = ("problem=copy", "test_examples=5", "valid_examples=5", "test_lengths=[20]")
        result = haltsweep(
            "data", "show", "algorithms", *overrides, "--split", "length-20", "--examples", "1"
        )
        (text, bits) = re.search(r"^((?:[01] ){20})>->([01]) #->", result.out, re.MULTILINE).groups()
        assert text.split()[0] == bits
        assert f"  = {text}#\n" in result.out

    def test_show_prints_the_label_names_of_the_task(self, haltsweep):
        result = haltsweep("data", "show", "logical_inference", "pairs=10000", "--split", "operators-3")
        assert "labels  # independent: " in result.out
        assert re.search(
            r"<sep> .*\n  = [#=<>^|v] (independent|equivalent|entails|is entailed|neg|alt|cov)", result.out
        )

    def test_show_prints_sequence_answers_and_their_lengths(self, haltsweep, tmp_path):
        arguments = ("train_examples=60", "valid_examples=10", "test_examples=10", "--figure", "f.png")
        result = haltsweep("data", "show", "transduction", *arguments, "--split", "train", "--examples", "1")
        (text, answer) = re.search(r"^(s\d.*)\n  = (s\d.*)$", result.out, re.MULTILINE).groups()
        assert text.split() == answer.split()[::-1]
        assert re.search(r"^answers 3 [▁▂▃▄▅▆▇█ ]+ 12$", result.out, re.MULTILINE)
        assert "labels  s0: " in result.out
        assert (tmp_path / "f.png").exists()

    def test_show_draws_images(self, haltsweep):
        result = haltsweep("data", "show", "digits", "--split", "valid", "--examples", "1")
        (drawing,) = re.findall(r"((?:^[ .:=+*#%@-]{16}\n){8})  = \d$", result.out, re.MULTILINE)
        assert {line[0::2] == line[1::2] for line in drawing.splitlines()} == {True}

    def test_show_of_a_streamed_split_uses_one_batch(self, haltsweep):
        result = haltsweep("data", "show", "algorithms", "--split", "train")
        assert f"{STEPS_UNKNOWN - 1:,} of seed 0" in result.out
        assert re.search(
            r"│ algorithms/train │ train │ +endless │ endless │ .* │ drawn [\d.]+% │", result.out
        )

    def test_show_json_has_all_statistics(self, haltsweep):
        result = haltsweep("data", "show", "tiny.yaml", "--json", "--examples", "1")
        splits = json.loads(result.out)
        assert [row["split"] for row in splits] == ["train", "valid", "near-iid"]
        train = splits[0]
        assert train["examples"] == sum(train["lengths"].values()) == sum(train["labels"].values())
        assert train["tokens"] == sum(int(length) * count for length, count in train["lengths"].items())
        assert train["floor"] == max(train["labels"].values()) / train["examples"]
        assert set(train["padding"]) == {"batch_size", "random", "bucketed"}
        assert train["padding"]["batch_size"] == 8
        assert 0 <= train["padding"]["bucketed"] < train["padding"]["random"] < 1
        assert set(splits[1]["padding"]) == {"batch_size", "sorted"}
        assert [set(example) for example in train["shown"]] == [{"text", "answer", "length"}]

    def test_show_reports_padding_of_token_batches(self, haltsweep):
        result = haltsweep(
            *("data", "show", "tiny.yaml", "--split", "train", "--json"),
            *("baseline.train.batch_tokens=64", "baseline.train.order=bucketed"),
        )
        assert set(json.loads(result.out)[0]["padding"]) == {"batch_size", "by tokens"}

    def test_figure_is_a_png_image(self, haltsweep, tmp_path):
        result = haltsweep("data", "show", "listops", *SMALL_TASK, "--figure", "f.png", "--split", "train")
        assert result.err == "figure: f.png\n"
        assert image.imread(tmp_path / "f.png").shape[1] == 1350

    @pytest.mark.parametrize("path", ["f.pdf", "no/such/folder/f.png"])
    def test_invalid_figure_path_is_refused_before_the_build(self, haltsweep, tmp_path, path):
        result = haltsweep("data", "show", "listops", *SMALL_TASK, "--figure", path)
        assert (result.code, result.out) == (2, "")
        assert str(path) in result.err
        assert file_names(tmp_path) == {"tiny.yaml"}


class TestVerify:
    @pytest.fixture
    def data_files(self, haltsweep, tmp_path):
        haltsweep("data", "build", "listops", *SMALL_TASK, "--split", "valid", "--split", "near-iid")
        return {path.stem: path for path in tmp_path.rglob("*.arrow")}

    def test_verify_accepts_intact_data(self, haltsweep, data_files):
        result = haltsweep("data", "verify")
        assert result.code == 0
        assert result.out.splitlines()[-1] == "data: 2 whole"
        assert re.search(
            r"^whole: data/.*valid\.arrow: [\d,]+ bytes, [0-9a-f]{32}$", result.out, re.MULTILINE
        )

    def test_verify_reports_damage_and_removes_it_on_request(self, haltsweep, data_files):
        content = bytearray(data_files["valid"].read_bytes())
        content[len(content) // 2] ^= 1
        data_files["valid"].write_bytes(content)
        data_files["near-iid"].with_suffix(".json").unlink()
        result = haltsweep("data", "verify", "data")
        assert result.code == 1
        assert "damaged: " in result.out
        assert result.out.splitlines()[-1] == "data: 1 damaged, 1 unsealed"
        rows = json.loads(haltsweep("data", "verify", "--json").out)
        assert {(row["verdict"], row["removed"]) for row in rows} == {
            ("damaged", False),
            ("unsealed", False),
        }
        result = haltsweep("data", "verify", "--remove")
        assert result.code == 0
        assert "damaged, removed: " in result.out
        assert haltsweep("data", "verify").out == "data: no data\n"
        assert (
            haltsweep("data", "build", "listops", *SMALL_TASK, "--split", "valid").out.count("built in") == 1
        )

    def test_verify_continues_past_folders_in_place_of_files(self, haltsweep, data_files):
        """Locks are folders and one seal is missing; `--remove` deletes the damaged data."""
        for path in data_files.values():
            path.with_suffix(".lock").unlink(missing_ok=True)
            path.with_suffix(".lock").mkdir()
        data_files["valid"].with_suffix(".json").unlink()
        result = haltsweep("data", "verify", "--remove")
        assert result.code == 0
        assert "unsealed, removed: " in result.out
        assert "whole: " in result.out
        result = haltsweep("data", "build", "listops", *SMALL_TASK, "--split", "valid")
        assert result.code == 1
        assert "Is a directory" in result.err
        assert "valid.lock" in result.err

    def test_verify_reports_files_that_it_cannot_delete(self, haltsweep, data_files, monkeypatch):
        data_files["valid"].with_suffix(".json").unlink()
        data_files["near-iid"].with_suffix(".json").unlink()
        unlink = Path.unlink

        def refuse_one_file(path, missing_ok=False):
            if path.suffix == ".arrow" and path.stem == "near-iid":
                raise PermissionError(1, "Operation not permitted", str(path))
            unlink(path, missing_ok)

        monkeypatch.setattr(Path, "unlink", refuse_one_file)
        result = haltsweep("data", "verify", "--remove")
        assert result.code == 1
        assert "near-iid.arrow" in result.err
        assert not data_files["valid"].exists()

    def test_verify_ignores_unknown_files(self, haltsweep, data_files, tmp_path):
        (tmp_path / "data/notes.txt").write_text("mine")
        result = haltsweep("data", "verify", "--remove")
        assert result.code == 0
        assert result.out.splitlines()[-1] == "data: 1 unknown, 2 whole"
        assert (tmp_path / "data/notes.txt").exists()

    def test_verify_refuses_a_missing_folder(self, haltsweep):
        result = haltsweep("data", "verify", "nowhere")
        assert result.code == 2
        assert "nowhere" in result.err


class TestBars:
    def test_bars_report_long_work_rarely(self, capsys):
        console.err.cache_clear()
        clock = Clock()
        with ProgressBars(clock=clock) as bars, bars.part("listops/train"):
            for step in range(1, 41):
                clock.now += 0.5
                report("trees", step * 1000, 40_000)
        output = capsys.readouterr()
        assert output.out == ""
        assert output.err == "listops/train: 10% of 40,000 trees\nlistops/train: 60% of 40,000 trees\n"

    def test_bars_report_the_process_that_blocks(self, capsys):
        console.err.cache_clear()
        with ProgressBars() as bars, bars.part("listops/train"):
            assert report_waiting("waiting for process 1 on here")
        assert capsys.readouterr().err == "waiting for process 1 on here\n"

    def test_terminal_shows_a_bar(self, monkeypatch, tmp_path):
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
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert process.stderr == "set()\n"
    assert "verify" in process.stdout


def test_spec_file_may_have_the_name_of_a_task(haltsweep, tmp_path):
    """A spec file needs no suffix."""
    shutil.copy(tmp_path / "tiny.yaml", tmp_path / "listops")
    assert [subject.batch_size for subject in subjects("listops", (), None)] == [32]
    shutil.move(tmp_path / "listops", tmp_path / "study")
    (loaded_subject,) = subjects("study", (), None)
    assert (loaded_subject.name, loaded_subject.batch_size, loaded_subject.steps) == ("listops", 8, 4)
    assert [info.name for info in loaded_subject.splits] == ["train", "valid", "near-iid"]
    (loaded_subject,) = subjects("study", (), None, ["lra"])
    assert [info.name for info in loaded_subject.splits] == ["lra"]
    with pytest.raises(InputError, match="'x'"):
        subjects("study", (), None, ["x"])


def test_sparkline_and_label_text_summarise_counts():
    import numpy as np

    assert sparkline(np.asarray([5])) == "█"
    assert sparkline(np.asarray([1, 1, 1, 1, 1, 1, 1, 1, 3])) == "█ ▁"
    assert len(sparkline(np.arange(1000))) == 40
    assert label_text({"a": 3, "b": 1}) == "a: 75.0%, b: 25.0%"
    label_counts = {str(number): number + 1 for number in range(LABELS_SHOWN + 1000)}
    assert label_text(label_counts).startswith("1011: 0.2%")
    assert label_text(label_counts).endswith(", and 1,000 more")


def test_long_examples_are_shortened():
    assert shorten_example("x" * TEXT_SHOWN) == "x" * TEXT_SHOWN
    assert shorten_example("x" * (TEXT_SHOWN + 1234)).endswith("x ... and 1,234 characters more")
