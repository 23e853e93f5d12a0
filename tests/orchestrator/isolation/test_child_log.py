"""The log of a child is bounded, masked, readable as text and separate for each attempt.

Logs after a kill -9 are tested in tests/faults.
"""

import os
import re
from contextlib import closing

import pytest

from orchestrator.isolation.child_log import HEAD_BYTES, RAW_BYTES, TAIL_BYTES, ChildLog, read_log
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


def test_secrets_are_masked_and_control_characters_are_escaped(file):
    log = ChildLog(file)
    os.write(log.descriptor, b"\x1b[31mred\x1b[0m http://user:marker@host/x \xff \x00\ttab")
    log.close()
    content = file.read_text()
    assert "marker" not in content
    assert "\\x1b[31mred" in content
    assert "\x00" not in content
    assert "\\xff" in content


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
    assert re.search("[0-9],[0-9]{3},[0-9]{3} bytes", text), "the log states its omissions"
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


def test_output_survives_a_kill_of_its_process(file, tmp_path):
    assert run_child(tmp_path, file, "os.write(1, b'last line\\n'); os.kill(os.getpid(), 9)") != 0
    assert log_files(file) == ["attempt-1.log"]
    assert "last line\n" in read_log(file)


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


def test_next_attempt_seals_the_log_of_a_killed_server(file):
    file.parent.mkdir(parents=True)
    file.with_suffix(".raw").write_text("last line\n")
    log = ChildLog(file.with_name("attempt-2.log"))
    assert log_files(file) == ["attempt-1.log", "attempt-2.raw"]
    log.close()
    assert log_files(file) == ["attempt-1.log"]
    assert read_log(file) == "last line\n"


@pytest.mark.parametrize("kind", ["link", "no-sweep"])
def test_blocked_log_file_loses_only_the_log(file, tmp_path, kind):
    raw = file.with_suffix(".raw")
    precious = tmp_path / "precious"
    precious.write_text("content")
    if kind == "no-sweep":
        file.parent.parent.parent.rmdir()
    else:
        file.parent.mkdir(parents=True)
        raw.symlink_to(precious)
    log = ChildLog(file)
    assert log.descriptor is None
    log.close()
    assert precious.read_text() == "content"
    assert read_log(file) is None
    assert (kind == "no-sweep") is not tmp_path.joinpath("sweep").exists()
