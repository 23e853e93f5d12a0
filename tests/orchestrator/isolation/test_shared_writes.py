"""Writes of trials to shared files in the launch folder."""

import pytest

from orchestrator.isolation.working_folder import SharedFileWritten
from tests.support.processes.folders import content


def test_only_one_trial_writes_to_an_absolute_path_in_the_launch_folder(trial, launch):
    """Some scripts name files by the folder of the script; the next trial would read these files."""
    write = f"open({str(launch / 'config.txt')!r}, 'w').write('absolute')"
    assert trial(f"{write}; {write}", trial="a") is None
    assert trial(write, trial="a") is None, "another attempt of the same trial may write the file"
    error = trial(write.replace("absolute", "other"), trial="b")
    assert isinstance(error, SharedFileWritten)
    assert "config.txt" in str(error)
    assert (launch / "config.txt").read_text() == "absolute"
    assert trial(write.replace("config", "of-b"), trial="b") is None


@pytest.mark.parametrize(
    "write",
    [
        "import os; open('new', 'w').write(content); os.replace('new', {!r})",
        "import torch; torch.save(content, {!r})",
        "import os; os.fork() or (open({!r}, 'w').write(content), os._exit(0)); os.wait()",
        "import contextlib\nwith contextlib.suppress(Exception): open({!r}, 'w').write(content)",
    ],
    ids=["replace", "torch", "fork", "caught"],
)
def test_only_one_trial_writes_to_an_absolute_path_anywhere(trial, tmp_path, write):
    pytest.importorskip("torch")
    (tmp_path / "scratch-disk").mkdir()
    path = tmp_path / "scratch-disk" / "best.pt"
    code = "content = {!r}; " + write.format(str(path))
    assert trial(code.format("a"), trial="a") is None
    written = path.read_bytes()
    error = trial(code.format("b"), trial="b")
    assert isinstance(error, SharedFileWritten)
    assert str(path) in str(error)
    assert path.read_bytes() == written


def test_all_trials_may_write_caches_and_temporary_files(trial, launch, tmp_path):
    caches = (".cache/huggingface/index.json", "hub/model.lock", "library/__pycache__/module.nbi")
    for name in caches:
        (tmp_path / "home" / name).parent.mkdir(parents=True, exist_ok=True)
    code = f"""
import os, tempfile
for folder in ({str(launch)!r}, None):
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"1")
for path in (os.devnull, *({str(tmp_path / "home")!r} + "/" + name for name in {caches!r})):
    with open(path, "w") as file:
        file.write("1")
"""
    assert trial(code, trial="a") is None
    assert trial(code, trial="b") is None


def test_program_in_the_launch_folder_writes_private_files(trial, launch):
    """Some scripts start a program in the folder of the script."""
    (launch / "job.py").write_text("open('score.txt', 'a').write('1')")
    earlier_content = content(launch)
    code = f"""
import subprocess, sys
subprocess.run([sys.executable, "job.py"], cwd={str(launch)!r}, check=True)
subprocess.Popen("echo 2 >> score.txt", shell=True, cwd={str(launch)!r}).wait()
subprocess.run("echo 3 >> old.txt", shell=True, cwd={str(launch / "data")!r}, check=True)
result = open("score.txt").read(), open("data/old.txt").read()
"""
    for _ in range(2):
        assert trial(code) == ("12\n", "3\n")
    assert content(launch) == earlier_content


PROGRAM = "import os; os.system('echo 1 > {}/{}')"


@pytest.mark.parametrize(
    "write",
    [PROGRAM, "import pyarrow, pyarrow.parquet as pq; pq.write_table(pyarrow.table({{'a': [1]}}), '{}/{}')"],
    ids=["program", "parquet"],
)
def test_change_of_unknown_cause_is_a_warning(trial, launch, tmp_path, write):
    """A program of the trial or a person who works in the launch folder may have changed the file."""
    assert "results/scores" in _warnings(trial, tmp_path, write.format(launch, "results/scores"))


def test_trial_that_reads_a_file_changed_for_an_unknown_cause_may_raise_an_error(trial, launch, tmp_path):
    """The file may contain the output of another trial's program."""
    file = launch / "best.txt"
    code = f"import os; os.system('echo 1 > {file}'); open({str(file)!r}).read()"
    assert "best.txt" in _warnings(trial, tmp_path, code), (
        "without another trial, the change must be a warning"
    )
    (tmp_path / "trials" / "another-0").mkdir()
    error = trial(code)
    assert isinstance(error, SharedFileWritten)
    assert "best.txt" in str(error)


def _warnings(run_trial, tmp_path, code, **options):
    written = tmp_path / "warnings"
    assert run_trial(f"import sys; sys.stderr = open({str(written)!r}, 'w', 1)\n{code}", **options) is None
    return written.read_text()


@pytest.mark.parametrize("name", ["runs/earlier/log", "mlruns/1/loss", "notes.md", "log"])
def test_files_of_other_tools_cause_no_warning(trial, launch, tmp_path, name):
    (launch / "mlruns" / "1").mkdir(parents=True)
    code = PROGRAM.format(launch, name)
    assert not _warnings(trial, tmp_path, code, exempt=(launch / "log",))


def test_files_of_another_trial_are_neither_replaced_nor_deleted(trial, launch):
    """Some code writes a temporary file first, or starts with an empty folder of results."""
    model = launch / "results" / "best.pt"
    save = f"""
import os, tempfile
number, name = tempfile.mkstemp(dir={str(launch)!r})
os.write(number, b"new")
os.replace(name, {str(model)!r})
"""
    assert trial(save, trial="a") is None
    assert isinstance(trial(save, trial="b"), SharedFileWritten), "the file was created by renaming"
    assert trial(save, trial="a") is None, "another attempt of the same trial may replace the file"
    for code in (
        save,
        f"import shutil; shutil.rmtree({str(launch / 'results')!r})",
        f"import os; os.remove({str(model)!r})",
        f"import os; os.truncate({str(model)!r}, 0)",
    ):
        error = trial(code, trial="b")
        assert isinstance(error, SharedFileWritten), code
        assert "results/best.pt" in str(error)
    assert model.read_bytes() == b"new"
