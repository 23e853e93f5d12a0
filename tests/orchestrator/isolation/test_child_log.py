"""The log of a child: whole or bounded, masked, as text, by attempt; kill -9 is in tests/faults."""

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
"""For the line that says how much is left out."""
PATIENCE_S = 60


@pytest.fixture
def file(tmp_path):
    return tmp_path / "sweep" / "logs" / "trial" / "attempt-1.log"


@pytest.fixture(autouse=True)
def sweep(file):
    file.parent.parent.parent.mkdir()


def kept(file):
    return sorted(path.name for path in file.parent.iterdir()) if file.parent.exists() else []


def test_what_is_printed_is_there_while_the_child_runs_and_sealed_afterwards(file):
    log = ChildLog(file)
    os.write(log.descriptor, b"one\n")
    assert kept(file) == ["attempt-1.raw"]
    assert read_log(file) == "one\n"
    os.write(log.descriptor, b"two\n")
    log.close()
    log.close()
    assert kept(file) == ["attempt-1.log"]
    assert read_log(file) == "one\ntwo\n"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_trial_that_prints_nothing_leaves_nothing(file):
    ChildLog(file).close()
    assert not file.parent.exists()
    assert read_log(file) is None


def test_without_a_file_nothing_is_kept():
    log = ChildLog(None)
    assert log.descriptor is None
    log.drop_middle()
    log.close()


def test_secrets_are_masked_and_control_characters_are_text(file):
    log = ChildLog(file)
    os.write(log.descriptor, b"\x1b[31mred\x1b[0m http://user:marker@host/x \xff \x00\ttab")
    log.close()
    content = file.read_text()
    assert "marker" not in content
    assert "\\x1b[31mred" in content
    assert "\x00" not in content
    assert "\\xff" in content


@pytest.mark.parametrize("size", [HEAD_BYTES + TAIL_BYTES, HEAD_BYTES + TAIL_BYTES + 1, 10_000_000])
def test_long_text_keeps_its_head_and_its_tail(size):
    content = b"HEAD" + b"x" * (size - 8) + b"TAIL"
    text = readable_text(content)
    assert len(text) <= HEAD_BYTES + TAIL_BYTES + SLACK
    assert text.startswith("HEADx")
    assert text.endswith("xTAIL")
    assert ("bytes left out" in text) is (size > HEAD_BYTES + TAIL_BYTES)


def test_a_talkative_trial_fills_no_disk(file):
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


def run(folder, file, code):
    """A child that prints in every way and runs code; its exit code."""
    with closing(ChildServer(settings_here(children.MODULE, folder, ()))) as server:
        server.start(order(children.print_everywhere, code, log=file))
        ended = server.receive(PATIENCE_S)
    assert isinstance(ended, ChildEnded)
    return ended.exit_code


def test_everything_that_a_child_prints_is_kept_and_shown_nowhere_else(file, tmp_path, capfd):
    assert run(tmp_path, file, "pass") == 0
    assert sorted(read_log(file).splitlines()) == ["a program", "descriptor", "libc", "python"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os.abort()", "os._exit(3)"])
def test_what_was_printed_survives_its_process(file, tmp_path, end):
    assert run(tmp_path, file, f"os.write(1, b'the last words\\n'); {end}") != 0
    assert kept(file) == ["attempt-1.log"]
    assert "the last words\n" in read_log(file)


def test_the_whole_traceback_is_kept(file, tmp_path):
    code = """
def deep(level):
    if not level:
        raise KeyError("at the bottom")
    if level % 2:  # two lines by turns, or the traceback would count them instead
        deep(level - 1)
    else:
        deep(level - 1)

deep(40)
"""
    assert run(tmp_path, file, code) == 1
    assert read_log(file).count("in deep") >= 40
    assert read_log(file).endswith("KeyError: 'at the bottom'\n")


def test_closed_streams_lose_nothing_but_what_follows(file, tmp_path):
    code = "print('before'); sys.stdout.close(); sys.stderr.close(); os.closerange(0, 100)"
    assert run(tmp_path, file, code) == 0
    assert "before\n" in read_log(file)


def test_a_child_that_prints_without_end_is_bounded_while_it_runs(file, tmp_path):
    code = f"""
for _ in range(60):
    os.write(1, b"z" * 100_000)
until = time.monotonic() + 30
while os.fstat(1).st_size > {RAW_BYTES + SLACK}:
    assert time.monotonic() < until
    time.sleep(0.01)
"""
    assert run(tmp_path, file, code) == 0
    assert file.stat().st_size <= HEAD_BYTES + TAIL_BYTES + SLACK


def test_a_log_that_is_cut_again_and_again_states_all_that_was_cut(file):
    log, times = ChildLog(file), 5
    for _ in range(times):
        os.write(log.descriptor, b"x" * RAW_BYTES)
        log.drop_middle()
    log.close()
    (stated,) = re.findall(r"\.\.\. ([\d,]+) bytes left out \.\.\.", read_log(file))
    assert int(stated.replace(",", "")) == times * RAW_BYTES - HEAD_BYTES - TAIL_BYTES


def test_the_next_attempt_seals_what_a_killed_server_left(file):
    file.parent.mkdir(parents=True)
    file.with_suffix(".raw").write_text("the last words\n")
    log = ChildLog(file.with_name("attempt-2.log"))
    assert kept(file) == ["attempt-1.log", "attempt-2.raw"]
    log.close()
    assert kept(file) == ["attempt-1.log"]
    assert read_log(file) == "the last words\n"


def test_an_empty_log_of_a_killed_server_is_in_nobody_s_way(file):
    file.parent.mkdir(parents=True)
    file.with_suffix(".raw").touch()
    log = ChildLog(file.with_name("attempt-2.log"))
    os.write(log.descriptor, b"heard")
    log.close()
    assert kept(file) == ["attempt-2.log"]


def test_a_log_half_written_by_a_killed_worker_is_written_again(file):
    file.parent.mkdir(parents=True)
    file.with_suffix(".raw").write_text("heard")
    file.with_name(f".{file.name}.7-0123abcd.tmp").write_text("he")
    child_log.seal_abandoned(file.parent)
    assert kept(file) == [file.name]
    assert read_log(file) == "heard"


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
    log = ChildLog(file)
    assert log.descriptor is None
    log.drop_middle()
    log.close()
    assert precious.read_text() == "kept"
    assert read_log(file) is None
    assert (kind == "no-sweep") is not tmp_path.joinpath("sweep").exists()
