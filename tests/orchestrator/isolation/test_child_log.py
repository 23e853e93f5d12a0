"""The log of a child is bounded, masked, readable as text and separate for each attempt.

Logs after a kill -9 are tested in tests/faults.
"""

import os
import re
from contextlib import closing

import pytest

from orchestrator.isolation import child_log
from orchestrator.isolation.child_log import (
    HEAD_BYTES,
    RAW_BYTES,
    TAIL_BYTES,
    ChildLog,
    read_log,
    readable_text,
)
from orchestrator.isolation.child_server import ChildServer, settings_here
from orchestrator.isolation.messages import ChildEnded
from tests.support.processes import children
from tests.support.processes.children import order

SLACK = 200
"""Size of the line that states the number of omitted bytes."""
PATIENCE_S = 60


@pytest.fixture
def file(tmp_path):
    return tmp_path / "sweep" / "logs" / "trial" / "attempt-1.log"


@pytest.fixture(autouse=True)
def sweep_folder(file):
    file.parent.parent.parent.mkdir()


def log_files(file):
    return sorted(path.name for path in file.parent.iterdir()) if file.parent.exists() else []


def test_output_is_readable_while_the_child_runs_and_sealed_afterwards(file):
    log = ChildLog(file)
    os.write(log.descriptor, b"one\n")
    assert log_files(file) == ["attempt-1.raw"]
    assert read_log(file) == "one\n"
    os.write(log.descriptor, b"two\n")
    log.close()
    log.close()
    assert log_files(file) == ["attempt-1.log"]
    assert read_log(file) == "one\ntwo\n"
    assert file.stat().st_mode & 0o777 == 0o600


def test_trial_without_output_leaves_no_log(file):
    ChildLog(file).close()
    assert not file.parent.exists()
    assert read_log(file) is None


def test_log_without_a_file_stores_nothing():
    log = ChildLog(None)
    assert log.descriptor is None
    log.drop_middle()
    log.close()


def test_secrets_are_masked_and_control_characters_are_escaped(file):
    log = ChildLog(file)
    os.write(log.descriptor, b"\x1b[31mred\x1b[0m http://user:marker@host/x \xff \x00\ttab")
    log.close()
    content = file.read_text()
    assert "marker" not in content
    assert "\\x1b[31mred" in content
    assert "\x00" not in content
    assert "\\xff" in content


@pytest.mark.parametrize("size", [HEAD_BYTES + TAIL_BYTES, HEAD_BYTES + TAIL_BYTES + 1, 10_000_000])
def test_long_text_retains_its_head_and_its_tail(size):
    content = b"HEAD" + b"x" * (size - 8) + b"TAIL"
    text = readable_text(content)
    assert len(text) <= HEAD_BYTES + TAIL_BYTES + SLACK
    assert text.startswith("HEADx")
    assert text.endswith("xTAIL")
    assert ("bytes left out" in text) is (size > HEAD_BYTES + TAIL_BYTES)


def test_log_of_a_trial_with_much_output_is_bounded(file):
    log, largest = ChildLog(file), 0
    os.write(log.descriptor, b"the first line\n")
    for number in range(200):
        os.write(log.descriptor, f"{number}:".encode() + b"y" * 20_000 + b"\n")
        log.drop_middle()
        largest = max(largest, file.with_suffix(".raw").stat().st_size)
    os.write(log.descriptor, b"the last line\n")
    log.close()
    assert largest <= RAW_BYTES + SLACK
    text = file.read_text()
    assert text.startswith("the first line\n0:y")
    assert text.endswith("y\nthe last line\n")
    assert file.stat().st_size <= HEAD_BYTES + TAIL_BYTES + SLACK


def run_child(folder, file, code):
    """Run a child that prints to every stream and then runs `code`; return its exit code."""
    with closing(ChildServer(settings_here(children.MODULE, folder, ()))) as server:
        server.start(order(children.print_everywhere, code, log=file))
        ended = server.receive(PATIENCE_S)
    assert isinstance(ended, ChildEnded)
    return ended.exit_code


def test_all_output_of_a_child_is_logged_and_not_printed(file, tmp_path, capfd):
    assert run_child(tmp_path, file, "pass") == 0
    assert sorted(read_log(file).splitlines()) == ["a program", "descriptor", "libc", "python"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os.abort()", "os._exit(3)"])
def test_output_survives_the_end_of_its_process(file, tmp_path, end):
    assert run_child(tmp_path, file, f"os.write(1, b'last line\\n'); {end}") != 0
    assert log_files(file) == ["attempt-1.log"]
    assert "last line\n" in read_log(file)


def test_whole_traceback_is_logged(file, tmp_path):
    code = """
def deep(level):
    if not level:
        raise KeyError("at the bottom")
    if level % 2:  # alternate two lines, because the traceback counts repeated lines
        deep(level - 1)
    else:
        deep(level - 1)

deep(40)
"""
    assert run_child(tmp_path, file, code) == 1
    assert read_log(file).count("in deep") >= 40
    assert read_log(file).endswith("KeyError: 'at the bottom'\n")


def test_closed_streams_lose_only_later_output(file, tmp_path):
    code = "print('before'); sys.stdout.close(); sys.stderr.close(); os.closerange(0, 100)"
    assert run_child(tmp_path, file, code) == 0
    assert "before\n" in read_log(file)


def test_endless_output_is_bounded_while_the_child_runs(file, tmp_path):
    code = f"""
for _ in range(60):
    os.write(1, b"z" * 100_000)
until = time.monotonic() + 30
while os.fstat(1).st_size > {RAW_BYTES + SLACK}:
    assert time.monotonic() < until
    time.sleep(0.01)
"""
    assert run_child(tmp_path, file, code) == 0
    assert file.stat().st_size <= HEAD_BYTES + TAIL_BYTES + SLACK


def test_repeatedly_shortened_log_states_all_omitted_bytes(file):
    log, times = ChildLog(file), 5
    for _ in range(times):
        os.write(log.descriptor, b"x" * RAW_BYTES)
        log.drop_middle()
    log.close()
    (omitted,) = re.findall(r"\.\.\. ([\d,]+) bytes left out \.\.\.", read_log(file))
    assert int(omitted.replace(",", "")) == times * RAW_BYTES - HEAD_BYTES - TAIL_BYTES


def test_next_attempt_seals_the_log_of_a_killed_server(file):
    file.parent.mkdir(parents=True)
    file.with_suffix(".raw").write_text("last line\n")
    log = ChildLog(file.with_name("attempt-2.log"))
    assert log_files(file) == ["attempt-1.log", "attempt-2.raw"]
    log.close()
    assert log_files(file) == ["attempt-1.log"]
    assert read_log(file) == "last line\n"


def test_empty_log_of_a_killed_server_is_deleted(file):
    file.parent.mkdir(parents=True)
    file.with_suffix(".raw").touch()
    log = ChildLog(file.with_name("attempt-2.log"))
    os.write(log.descriptor, b"output")
    log.close()
    assert log_files(file) == ["attempt-2.log"]


def test_log_half_written_by_a_killed_worker_is_rewritten(file):
    file.parent.mkdir(parents=True)
    file.with_suffix(".raw").write_text("output")
    file.with_name(f".{file.name}.7-0123abcd.tmp").write_text("ou")
    child_log.seal_abandoned(file.parent)
    assert log_files(file) == [file.name]
    assert read_log(file) == "output"


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "no-sweep"])
def test_blocked_log_file_loses_only_the_log(file, tmp_path, kind):
    raw = file.with_suffix(".raw")
    precious = tmp_path / "precious"
    precious.write_text("content")
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
    log = ChildLog(file)
    assert log.descriptor is None
    log.drop_middle()
    log.close()
    assert precious.read_text() == "content"
    assert read_log(file) is None
    assert (kind == "no-sweep") is not tmp_path.joinpath("sweep").exists()
