"""What takes long is told in a log, whether one thing hangs or thousands go by."""

import time

import pytest

from orchestrator.cli.display import console
from orchestrator.cli.display import wait_display as waiting
from orchestrator.cli.display.wait_display import WaitDisplay


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seconds become hundredths."""
    monkeypatch.setattr(waiting, "LOOK_S", 0.005)
    monkeypatch.setattr(waiting, "FIRST_S", 0.02)
    monkeypatch.setattr(waiting, "PLAIN_EVERY_S", 0.05)
    console.err.cache_clear()


def until_told(heard: list[str], doing: WaitDisplay, beginning: str, *, hangs: bool) -> list[str]:
    """What is heard that begins so. Gives up after a while: a machine may be busy."""
    until = time.monotonic() + 60
    number = 0
    while not (shown := [text for text in heard if text.startswith(beginning)]) and time.monotonic() < until:
        if not hangs or not number:
            doing.update(f"{number} done")
        number += 1
        time.sleep(0.001)
    return shown


@pytest.mark.parametrize("hangs", [True, False])
def test_a_wait_shows_its_current_step_and_age(monkeypatch: pytest.MonkeyPatch, hangs: bool) -> None:
    heard: list[str] = []
    monkeypatch.setattr(waiting, "print_error", heard.append)
    with WaitDisplay("Ctrl-C ends it", "planning", first_s=0.02) as doing:
        beginning = "planning: 0 done" if hangs else "planning: "
        shown = until_told(heard, doing, beginning, hangs=hangs)
    assert shown, f"it was not told that {beginning}, but {heard}"
    assert shown[0].endswith("; Ctrl-C ends it")


def test_a_short_wait_prints_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[str] = []
    monkeypatch.setattr(waiting, "print_error", heard.append)
    with WaitDisplay("Ctrl-C ends it", "planning", first_s=3600.0) as doing:
        doing.update("something")
        time.sleep(0.05)
    assert heard == []
