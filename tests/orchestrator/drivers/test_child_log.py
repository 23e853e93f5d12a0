"""What trials print: kept whole or bounded, masked, as text, by attempt; kill -9 is in tests/faults."""

import os
import re
import subprocess
import sys
import threading

import pytest
from orchestrator.drivers.output import HEAD_BYTES, RAW_BYTES, TAIL_BYTES, PythonOutput, as_text, read

from orchestrator.drivers import output as module
from orchestrator.drivers.worker import Harness
from trainables.protocol import Job

SLACK = 200
"""For the line that says how much is left out."""


@pytest.fixture
def file(tmp_path):
    return tmp_path / "sweep" / "logs" / "trial" / "attempt-1.log"


@pytest.fixture(autouse=True)
def sweep(file):
    file.parent.parent.parent.mkdir()


def kept(file):
    return sorted(path.name for path in file.parent.iterdir()) if file.parent.exists() else []


def test_python_s_streams_are_heard_and_shown_as_before(file, capsys):
    heard = PythonOutput()
    heard.begin(file)
    print("before the trial")
    with heard.listening():
        print("to out")
        print("to err", file=sys.stderr)
        sys.stdout.writelines(["one\n", "two\n"])
    assert kept(file) == ["attempt-1.raw"]
    print("after the step")
    heard.end()
    assert kept(file) == ["attempt-1.log"]
    text = read(file)
    assert text is not None
    assert text == "to out\nto err\none\ntwo\n"
    assert "to out" in capsys.readouterr().out
    assert file.stat().st_mode & 0o777 == 0o600


def test_threads_of_the_launcher_are_not_heard_those_of_the_trial_are(file):
    go, done = threading.Event(), threading.Event()

    def launcher():
        go.wait(10)
        print("the view")
        done.set()

    other = threading.Thread(target=launcher)
    other.start()
    heard = PythonOutput()
    heard.begin(file)
    with heard.listening():
        go.set()
        assert done.wait(10)
        mine = threading.Thread(target=print, args=("the trial",))
        mine.start()
        mine.join()
    heard.end()
    other.join()
    assert read(file) == "the trial\n"


def test_a_trial_that_prints_nothing_leaves_nothing(file):
    heard = PythonOutput()
    heard.begin(file)
    heard.end()
    assert not file.parent.exists()
    assert read(file) is None


def test_the_whole_traceback_is_kept(file):
    heard = PythonOutput()
    heard.begin(file)

    def deep(level):
        if not level:
            raise KeyError("at the bottom")
        if level % 2:  # two lines by turns, or the traceback would count them instead
            deep(level - 1)
        else:
            deep(level - 1)

    try:
        deep(40)
    except KeyError as error:
        heard.failed(error)
    heard.end()
    text = read(file)
    assert text is not None
    assert text.count("in deep") >= 40
    assert text.endswith("KeyError: 'at the bottom'\n")


def test_secrets_are_masked_and_control_characters_are_text(file):
    heard = PythonOutput()
    heard.begin(file)
    with heard.listening():
        print("\x1b[31mred\x1b[0m http://user:marker@host/x \ud800 \x00\ttab")
    heard.end()
    content = file.read_text()
    assert "marker" not in content
    assert "\\x1b[31mred" in content
    assert "\x00" not in content
    assert "\\ud800" in content


@pytest.mark.parametrize("size", [HEAD_BYTES + TAIL_BYTES, HEAD_BYTES + TAIL_BYTES + 1, 10_000_000])
def test_long_text_keeps_its_head_and_its_tail(size):
    content = b"HEAD" + b"x" * (size - 8) + b"TAIL"
    text = as_text(content)
    assert len(text) <= HEAD_BYTES + TAIL_BYTES + SLACK
    assert text.startswith("HEADx")
    assert text.endswith("xTAIL")
    assert ("bytes left out" in text) is (size > HEAD_BYTES + TAIL_BYTES)


def test_a_log_that_is_cut_again_and_again_states_all_that_was_cut(file):
    file.parent.mkdir(parents=True)
    raw = module._RawFile(file.with_suffix(module.RAW))
    written = 0
    for _ in range(5):
        raw.write("x" * RAW_BYTES)
        written += RAW_BYTES
        raw.bound()
    raw.close()
    (stated,) = re.findall(r"\.\.\. ([\d,]+) bytes left out \.\.\.", read(file))
    assert int(stated.replace(",", "")) == written - HEAD_BYTES - TAIL_BYTES


def test_a_talkative_trial_fills_no_disk(file):
    heard = PythonOutput()
    heard.begin(file)
    largest = 0
    with heard.listening():
        print("the first line")
        for number in range(200):
            sys.stdout.write(f"{number}:" + "y" * 20_000 + "\n")
            largest = max(largest, file.with_suffix(".raw").stat().st_size)
        print("the last line")
    heard.end()
    assert largest <= RAW_BYTES + SLACK
    text = file.read_text()
    assert text.startswith("the first line\n0:y")
    assert text.endswith("y\nthe last line\n")
    assert file.stat().st_size <= HEAD_BYTES + TAIL_BYTES + SLACK


PROCESS = """
import ctypes, os, subprocess, sys, time
from pathlib import Path
from orchestrator.drivers import output
output.LOOK_S = 0.05
heard = output.ProcessOutput()
print("before", flush=True)
heard.begin(Path(sys.argv[1]))
print("python")
os.write(2, b"descriptor\\n")
subprocess.run(["echo", "a child"])
ctypes.CDLL(None).puts(b"libc"); ctypes.CDLL(None).fflush(None)
exec(sys.argv[2])
heard.end()
print("after", flush=True)
"""


def run(file, what="pass"):
    return subprocess.run(
        [sys.executable, "-c", PROCESS, str(file), what], capture_output=True, text=True, check=False
    )


def test_a_worker_s_process_is_heard_whole(file):
    done = run(file)
    assert (done.returncode, done.stdout, done.stderr) == (0, "before\nafter\n", "")
    text = read(file)
    assert text is not None
    assert sorted(text.splitlines()) == ["a child", "descriptor", "libc", "python"]


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "ctypes.string_at(0)", "os._exit(3)"])
def test_what_was_printed_survives_its_process(file, end):
    done = run(file, f"os.write(1, b'the last words\\n'); {end}")
    assert done.returncode != 0
    assert kept(file) == ["attempt-1.raw"]
    text = read(file)
    assert text is not None
    assert "the last words\n" in text
    again = PythonOutput()
    again.begin(file.with_name("attempt-2.log"))
    assert kept(file) == ["attempt-1.log", "attempt-2.raw"]
    again.end()
    assert kept(file) == ["attempt-1.log"]


def test_a_worker_that_prints_without_end_is_bounded_while_it_runs(file):
    what = """
for _ in range(60):
    os.write(1, b"z" * 100_000)
    time.sleep(0.01)
time.sleep(1)
assert Path(sys.argv[1]).with_suffix(".raw").stat().st_size <= output.RAW_BYTES + 200
"""
    assert run(file, what).returncode == 0
    assert file.stat().st_size <= HEAD_BYTES + TAIL_BYTES + SLACK


def test_what_a_killed_worker_left_empty_is_in_nobody_s_way(file):
    file.parent.mkdir(parents=True)
    file.with_suffix(".raw").touch()
    heard = PythonOutput()
    heard.begin(file.with_name("attempt-2.log"))
    with heard.listening():
        print("heard")
    heard.end()
    assert kept(file) == ["attempt-2.log"]


def test_a_log_half_written_by_a_killed_worker_is_written_again(file):
    file.parent.mkdir(parents=True)
    file.with_suffix(".raw").write_text("heard")
    file.with_name(f".{file.name}.7-0123abcd.tmp").write_text("he")
    module.seal_abandoned(file.parent)
    assert kept(file) == [file.name]
    assert read(file) == "heard"


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "no-sweep"])
def test_what_stands_in_the_way_costs_the_log_alone(file, tmp_path, kind):
    raw = file.with_suffix(".raw")
    precious = tmp_path / "precious"
    precious.write_text("kept")
    if kind == "no-sweep":
        file.parent.parent.parent.rmdir()
    else:
        file.parent.mkdir(parents=True)
    if kind == "link":
        raw.symlink_to(precious)
    elif kind == "pipe":
        os.mkfifo(raw)
    elif kind == "folder":
        raw.mkdir()
    heard = PythonOutput()
    heard.begin(file)
    with heard.listening():
        print("lost")
    heard.end()
    assert precious.read_text() == "kept"
    assert read(file) is None
    assert (kind == "no-sweep") is not tmp_path.joinpath("sweep").exists()


class Loud:
    """A workload that prints wherever it can."""

    def __init__(self, job):
        print("built")
        self.finished = False

    def advance(self):
        print("stepped")
        raise RuntimeError("all of it")

    def save(self, folder): ...

    def restore(self, folder): ...

    def close(self):
        print("closed")


def test_the_harness_keeps_what_a_trial_prints_from_its_beginning_to_its_end(file, tmp_path):
    harness = Harness(f"{__name__}:Loud", output=PythonOutput())
    harness.start(Job({}, 0, "search", (), tmp_path, None), tmp_path / "checkpoints", file)
    assert harness.advance().ended is not None
    text = read(file)
    assert text is not None
    assert text.startswith("built\nstepped\nTraceback (most recent call last):\n")
    assert text.endswith("RuntimeError: all of it\nclosed\n")
    assert module.seal_abandoned(file.parent) is None


def test_a_trial_that_closes_its_output_closes_nobody_else_s(capsys, tmp_path):
    log = tmp_path / "sweep" / "logs" / "trial" / "attempt-1.log"
    (tmp_path / "sweep").mkdir(exist_ok=True)
    output = PythonOutput()
    output.begin(log)
    with output.listening():
        print("before")
        sys.stdout.close()
        sys.stderr.close()
    print("after")
    output.end()
    assert capsys.readouterr().out == "before\nafter\n"
    assert log.read_text() == "before\n"
