"""`haltsweep data build`, `show` and `verify`: results and refusals."""

import errno
import json
import os
import re
import shutil
import time

import pytest

from orchestrator.cli.task_data import resolve_data
from tests.support.processes.commands import TINY, Shell, answer

SMALL_TASK = [
    "trees=400",
    "near_iid_examples=20",
    "valid_examples=20",
    "test_examples=10",
    "length_ranges=[]",
]


@pytest.fixture(autouse=True)
def spec(tmp_path):
    (tmp_path / "tiny.yaml").write_text(TINY)


def file_names(folder):
    return {path.name for path in folder.rglob("*") if path.is_file()}


class TestBuild:
    def test_build_of_a_task_reports_each_split(self, haltsweep, tmp_path):
        result = haltsweep("data", "build", "listops", *SMALL_TASK, "--split", "valid", "--split", "near-iid")
        assert (result.code, result.err) == (0, "")
        line = r"listops/{0}: .*: 20 examples, [\d,]+ bytes, \w{{32}}, data/listops/.*{0}.arrow"
        lines = result.out.splitlines()
        assert re.fullmatch(line.format("valid"), lines[0])
        assert re.fullmatch(line.format("near-iid"), lines[1])
        second_result = haltsweep("data", "build", "listops", *SMALL_TASK, "--split", "valid")
        assert second_result.out.endswith(lines[0].partition(": 20 ")[2] + "\n")
        assert second_result.out != lines[0] + "\n"

    def test_build_of_a_spec_builds_the_data_of_a_launch(self, haltsweep, tmp_path):
        result = haltsweep("data", "build", "tiny.yaml", "--data", "d")
        assert [text.split(":")[0] for text in result.out.splitlines()] == [
            *("listops/train", "listops/valid", "listops/near-iid")
        ]
        second_result = haltsweep("data", "build", "tiny.yaml", "--profile", "short", "--data", "d")
        assert second_result.out.count(": exists:") == 3

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (("lstops",), "'listops'"),
            (("nowhere.yaml",), "nowhere.yaml"),
            (("listops", "trees=x"), "task.trees: "),
            (("listops", "--split", "tain"), "'tain'"),
            (("tiny.yaml", "baseline.task.tres=1"), "task.tres"),
            (("logical_inference", "folder=nowhere"), "train0 .. "),
        ],
    )
    def test_build_refuses_bad_input_before_it_writes_files(self, haltsweep, tmp_path, arguments, expected):
        result = haltsweep("data", "build", *arguments)
        assert (result.code, result.out) == (2, "")
        assert expected in result.err
        assert file_names(tmp_path) == {"tiny.yaml"}

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


def start_build(shell, folder):
    return shell.started("data", "build", "listops", "trees=30000", "--split", "train", "--data", str(folder))


def wait_for_digest(process):
    result = answer(process)
    assert result.code == 0, result.err
    return result.out.split()[-2].rstrip(",")


@pytest.mark.slow
def test_killed_and_concurrent_builds_leave_one_intact_copy(tmp_path, haltsweep):
    """Kill two builds late in their course, then start two builds at once."""
    shell = Shell.at(tmp_path)
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
        digests = [wait_for_digest(process) for process in (first_process, second_process)]
    assert digests == [expected_digest, expected_digest]
    assert file_names(tmp_path / "d") == {"train.arrow", "train.json", "train.lock"}
    report = json.loads(haltsweep("data", "verify", str(tmp_path / "d"), "--json").out)
    assert [(row["verdict"], row["content_hash"]) for row in report] == [("whole", expected_digest)]


class TestShow:
    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (("listops", *SMALL_TASK, "--split", "train"), "labels  0: "),
            (("transduction", "train_examples=60", "--split", "train", "--figure", "f.png"), "answers 3 "),
            (("algorithms", "--split", "train"), "endless"),
            (("digits", "--split", "valid"), "  = "),
        ],
    )
    def test_show_prints_examples_of_every_kind_of_answer(self, haltsweep, tmp_path, arguments, expected):
        result = haltsweep("data", "show", *arguments, "--examples", "1")
        assert (result.code, expected in result.out) == (0, True)
        assert (tmp_path / "f.png").exists() == ("--figure" in arguments)

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


class TestVerify:
    @pytest.fixture
    def data_files(self, haltsweep, tmp_path):
        haltsweep("data", "build", "listops", *SMALL_TASK, "--split", "valid", "--split", "near-iid")
        return {path.stem: path for path in tmp_path.rglob("*.arrow")}

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
        assert {(row["verdict"], row["removed"]) for row in rows} == {("damaged", False), ("unsealed", False)}
        result = haltsweep("data", "verify", "--remove")
        assert result.code == 0
        assert "damaged, removed: " in result.out
        assert json.loads(haltsweep("data", "verify", "--json").out) == []

    def test_verify_ignores_unknown_files(self, haltsweep, data_files, tmp_path):
        (tmp_path / "data/notes.txt").write_text("mine")
        result = haltsweep("data", "verify", "--remove")
        assert result.code == 0
        assert result.out.splitlines()[-1] == "data: 1 unknown, 2 whole"
        assert (tmp_path / "data/notes.txt").exists()


def test_spec_file_may_have_the_name_of_a_task(haltsweep, tmp_path):
    """A spec file needs no suffix."""
    shutil.copy(tmp_path / "tiny.yaml", tmp_path / "listops")
    assert [subject.batch_size for subject in resolve_data("listops", (), None)] == [32]
    shutil.move(tmp_path / "listops", tmp_path / "study")
    (loaded_subject,) = resolve_data("study", (), None)
    assert (loaded_subject.name, loaded_subject.batch_size, loaded_subject.steps) == ("listops", 8, 4)
    assert [info.name for info in loaded_subject.splits] == ["train", "valid", "near-iid"]
    (loaded_subject,) = resolve_data("study", (), None, ["lra"])
    assert [info.name for info in loaded_subject.splits] == ["lra"]


def test_spec_of_custom_code_is_refused(haltsweep, tmp_path):
    spec = "name: own\nquestion: q\ntrainable: own:train\nbaseline: {x: 1}\nconfirm: {seeds: 3}\n"
    (tmp_path / "own.yaml").write_text(spec)
    result = haltsweep("data", "show", "own.yaml")
    assert (result.code, "own:train" in result.err) == (2, True)
