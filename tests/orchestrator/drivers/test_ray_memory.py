"""A worker knows whether the last trial gave its memory back."""

import pytest

from orchestrator.drivers import memory
from orchestrator.drivers.memory import DEVICE_SLACK_BYTES, HOST_SLACK_BYTES, Footprint


@pytest.fixture
def levels(monkeypatch):
    """Memory that is what the test says."""
    held = {"host": 1 << 30, "device": 0}
    monkeypatch.setattr(memory, "host_bytes", lambda: held["host"])
    monkeypatch.setattr(memory, "device_bytes", lambda: held["device"])
    monkeypatch.setattr(memory.gc, "freeze", lambda: None)
    return held


def test_the_first_trial_sets_the_base_line(levels):
    footprint = Footprint()
    assert footprint.settled()
    levels["host"] += HOST_SLACK_BYTES
    assert footprint.settled()
    levels["host"] += 1
    assert not footprint.settled()
    levels["host"] -= 1
    assert footprint.settled()


def test_a_slow_leak_is_found_for_the_base_line_stays(levels):
    footprint = Footprint()
    seen = []
    for _ in range(6):
        seen.append(footprint.settled())
        levels["host"] += HOST_SLACK_BYTES // 4
    assert seen == [True, True, True, True, True, False]


def test_device_memory_must_be_free_after_the_first_trial_too(levels):
    levels["device"] = DEVICE_SLACK_BYTES + 1
    assert not Footprint().settled()
    levels["device"] = DEVICE_SLACK_BYTES
    assert Footprint().settled()


def test_a_large_process_may_vary_more(levels):
    levels["host"] = 8 << 30
    footprint = Footprint()
    assert footprint.settled()
    levels["host"] += 2 << 30
    assert footprint.settled()
    levels["host"] += 1
    assert not footprint.settled()


def test_what_this_process_holds_is_seen(tmp_path):
    import mmap

    size = 128 << 20
    before = memory.host_bytes()
    held = bytearray(b"x") * size
    assert memory.host_bytes() - before > size * 0.9
    del held
    file = tmp_path / "mapped"
    file.write_bytes(bytes(size))
    before = memory.host_bytes()
    with file.open("rb") as stream, mmap.mmap(stream.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert sum(mapped[:: 1 << 12]) == 0
        assert memory.host_bytes() - before < size * 0.1, "a mapped dataset is not ours to give back"


def test_garbage_in_cycles_is_no_leak():
    footprint = Footprint()
    assert footprint.settled()
    cycle: list[object] = [bytearray(b"x") * (HOST_SLACK_BYTES + (200 << 20))]
    cycle.append(cycle)
    del cycle
    assert footprint.settled()


def test_without_torch_no_device_memory_is_held(monkeypatch):
    monkeypatch.delitem(memory.sys.modules, "torch", raising=False)
    assert memory.device_bytes() == 0
