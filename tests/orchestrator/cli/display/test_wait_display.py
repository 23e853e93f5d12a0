"""Long waits are printed to the log, with one slow step or with many short steps."""

import time

import pytest

from orchestrator.cli.display import console
from orchestrator.cli.display import wait_display as waiting
from orchestrator.cli.display.wait_display import WaitDisplay


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the intervals of the display from seconds to hundredths of a second."""
    monkeypatch.setattr(waiting, "REFRESH_S", 0.005)
    monkeypatch.setattr(waiting, "FIRST_LINE_S", 0.02)
    monkeypatch.setattr(waiting, "LINE_INTERVAL_S", 0.05)
    console.err.cache_clear()


def wait_for_message(
    messages: list[str], waiting_display: WaitDisplay, prefix: str, *, is_stuck: bool
) -> list[str]:
    """Return the messages with this prefix, or none after 60 seconds."""
    deadline = time.monotonic() + 60
    number = 0
    while (
        not (matches := [text for text in messages if text.startswith(prefix)])
        and time.monotonic() < deadline
    ):
        if not is_stuck or not number:
            waiting_display.update(f"{number} done")
        number += 1
        time.sleep(0.001)
    return matches


@pytest.mark.parametrize("is_stuck", [True, False])
def test_wait_shows_its_step_and_duration(monkeypatch: pytest.MonkeyPatch, is_stuck: bool) -> None:
    messages: list[str] = []
    monkeypatch.setattr(waiting, "print_error", messages.append)
    with WaitDisplay("Ctrl-C ends it", "planning", first_s=0.02) as waiting_display:
        prefix = "planning: 0 done" if is_stuck else "planning: "
        matches = wait_for_message(messages, waiting_display, prefix, is_stuck=is_stuck)
    assert matches, f"expected a message with the prefix {prefix}, got {messages}"
    assert matches[0].endswith("; Ctrl-C ends it")
