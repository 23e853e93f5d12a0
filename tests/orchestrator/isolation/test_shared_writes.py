"""What trials write in the launch folder itself, where all of them would read it."""

import pytest

from orchestrator.isolation.working_folder import SharedFileWritten
from tests.support.processes.folders import content


def test_one_trial_alone_writes_to_an_absolute_path_in_the_launch_folder(trial, launch):
    """As scripts do that name their files by the folder of the script: the next trial would read them."""
    write = f"open({str(launch / 'config.txt')!r}, 'w').write('absolute')"
    assert trial(f"{write}; {write}", trial="a") is None
    assert trial(write, trial="a") is None, "another attempt of this trial"
    error = trial(write.replace("absolute", "other"), trial="b")
    assert isinstance(error, SharedFileWritten)
    assert "config.txt" in str(error)
    assert (launch / "config.txt").read_text() == "absolute"
    assert trial(write.replace("config", "of-b"), trial="b") is None


@pytest.mark.parametrize(
    "write",
    [
        "open({!r}, 'w').write(content)",
        "import os; open('new', 'w').write(content); os.replace('new', {!r})",
        "import torch; torch.save(content, {!r})",
        "import os; os.chdir(os.path.dirname({0!r})); open(os.path.basename({0!r}), 'w').write(content)",
        "import os; os.fork() or (open({!r}, 'w').write(content), os._exit(0)); os.wait()",
        "import contextlib\nwith contextlib.suppress(Exception): open({!r}, 'w').write(content)",
    ],
    ids=["open", "replace", "torch", "chdir", "fork", "caught"],
)
def test_one_trial_alone_writes_to_an_absolute_path_anywhere(trial, tmp_path, write):
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


def test_all_trials_write_files_that_are_nobody_s(trial, launch, tmp_path):
    caches = (".cache/huggingface/index.json", "hub/model.lock", "library/__pycache__/module.nbi")
    for each in caches:
        (tmp_path / "home" / each).parent.mkdir(parents=True, exist_ok=True)
    code = f"""
import os, tempfile
for folder in ({str(launch)!r}, None):
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"1")
for each in (os.devnull, *({str(tmp_path / "home")!r} + "/" + each for each in {caches!r})):
    with open(each, "w") as file:
        file.write("1")
"""
    assert trial(code, trial="a") is None
    assert trial(code, trial="b") is None


def test_a_program_that_runs_in_the_launch_folder_stays_private(trial, launch):
    """As scripts do that start a program in the folder of their own file."""
    (launch / "job.py").write_text("open('score.txt', 'a').write('1')")
    before = content(launch)
    code = f"""
import subprocess, sys
subprocess.run([sys.executable, "job.py"], cwd={str(launch)!r}, check=True)
subprocess.Popen("echo 2 >> score.txt", 1, None, None, None, None, None, True, True, {str(launch)!r}).wait()
subprocess.run("echo 3 >> old.txt", shell=True, cwd={str(launch / "data")!r}, check=True)
result = open("score.txt").read(), open("data/old.txt").read()
"""
    for _ in range(2):
        assert trial(code) == ("12\n", "3\n")
    assert content(launch) == before


PROGRAM = "import os; os.system('echo 1 > {}/{}')"
SPAWNED = """
import multiprocessing, pathlib
multiprocessing.current_process()._config["daemon"] = False  # servers of tests are forks of a daemon
path = pathlib.Path("{}/{}")
worker = multiprocessing.get_context("spawn").Process(target=pathlib.Path.touch, args=(path,))
worker.start()
worker.join()
"""


FORK_SERVER = SPAWNED.replace('"spawn"', '"forkserver"')
LOKY = """
import multiprocessing, pathlib
from joblib import Parallel, delayed
multiprocessing.current_process()._config["daemon"] = False
Parallel(n_jobs=2)(delayed(pathlib.Path.touch)(pathlib.Path("{}/{}")) for _ in range(2))
"""


@pytest.mark.parametrize(
    ("write", "name"),
    [
        (FORK_SERVER, "touched"),
        (LOKY, "touched"),
        (
            "import pyarrow, pyarrow.csv; pyarrow.csv.write_csv(pyarrow.table({{'a': [1]}}), '{}/{}')",
            "scores.csv",
        ),
        (PROGRAM, "results/scores.csv"),
        (
            "import pyarrow, pyarrow.parquet as pq; pq.write_table(pyarrow.table({{'a': [1]}}), '{}/{}')",
            "a.parquet",
        ),
        (SPAWNED, "touched"),
    ],
    ids=["fork server", "loky", "csv", "program", "parquet", "spawned"],
)
def test_a_change_of_unknown_cause_is_a_warning(trial, launch, tmp_path, write, name):
    """A program of the trial may have made it, or a person who works in the launch folder."""
    assert name in _warnings(trial, tmp_path, write.format(launch, name))


def test_a_trial_that_reads_a_file_changed_for_an_unknown_cause_beside_others_ends_with_an_error(
    trial, launch, tmp_path
):
    """The file may contain what a program of another trial has written."""
    file = launch / "best.txt"
    code = f"import os; os.system('echo 1 > {file}'); open({str(file)!r}).read()"
    assert "best.txt" in _warnings(trial, tmp_path, code), "no other trial runs"
    (tmp_path / "trials" / "another-0").mkdir()
    error = trial(code)
    assert isinstance(error, SharedFileWritten)
    assert "best.txt" in str(error)


def _warnings(run, tmp_path, code, **more):
    written = tmp_path / "warnings"
    assert run(f"import sys; sys.stderr = open({str(written)!r}, 'w', 1)\n{code}", **more) is None
    return written.read_text()


def test_a_program_that_writes_by_a_link_to_a_large_file_is_a_warning(trial, tmp_path):
    code = "import os; os.system('echo new > data/deep/rows.bin')"
    assert "data/deep/rows.bin" in _warnings(trial, tmp_path, code)


@pytest.mark.parametrize(
    "name", ["runs/earlier/log", ".cache/file", "mlruns/1/loss", "notes.md", "mlflow.db", "log"]
)
def test_files_that_others_write_are_nobody_s_fault(trial, launch, tmp_path, name):
    (launch / "mlruns" / "1").mkdir(parents=True)
    code = PROGRAM.format(launch, name)
    assert not _warnings(trial, tmp_path, code, exempt=(launch / "log",))


def test_what_another_trial_writes_is_not_blamed_on_one_with_programs(trial, launch, tmp_path):
    write = f"open({str(launch / 'of-a.txt')!r}, 'w').write('1')"
    assert trial(write, trial="a") is None
    code = f"import os; os.system('true'); os.utime({str(launch / 'of-a.txt')!r})"
    assert not _warnings(trial, tmp_path, code, trial="b")


def test_files_of_another_trial_are_neither_replaced_nor_deleted(trial, launch):
    """As code does that saves to a temporary file first, or begins with an empty folder of results."""
    model = launch / "results" / "best.pt"
    save = f"""
import os, tempfile
number, name = tempfile.mkstemp(dir={str(launch)!r})
os.write(number, b"new")
os.replace(name, {str(model)!r})
"""
    assert trial(save, trial="a") is None
    assert isinstance(trial(save, trial="b"), SharedFileWritten), "created by renaming alone"
    assert trial(save, trial="a") is None, "another attempt of this trial"
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


@pytest.mark.parametrize("change", ["remove({!r})", "rename('own.txt', {!r})"])
def test_entries_of_linked_folders_are_replaced_and_deleted_privately(trial, launch, change):
    before = content(launch)
    code = f"import os; open('own.txt', 'w'); os.{change.format('.cache/vocabulary.txt')}"
    assert trial(code) is None
    assert content(launch) == before
