"""Threads that take steps together: who waits for whom, and what each is told."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from trainables.meeting import GivenUp, Meeting, meeting

PATIENCE_S = 10.0


def together(given: list[Any], step: int) -> list[Any]:
    return [(each, step, sorted(given)) for each in given]


def run(*members: Callable[[Meeting], Any]) -> list[Any]:
    """What each member returns or raises, in threads of one meeting."""
    here, found = Meeting(), [None] * len(members)
    here.expect(len(members))

    def live(number: int) -> None:
        try:
            with here.member():
                found[number] = members[number](here)
        except BaseException as error:
            found[number] = error

    threads = [threading.Thread(target=live, args=(number,), daemon=True) for number in range(len(members))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive(), "nobody may wait for ever"
    return found


def steps(name: str, first: int, last: int) -> Callable[[Meeting], list[Any]]:
    return lambda here: [here.step(name, step, together)[0] for step in range(first, last)]


def test_steps_of_the_same_number_are_taken_together() -> None:
    one, other = run(steps("a", 0, 3), steps("b", 0, 3))
    assert one == [("a", step, ["a", "b"]) for step in range(3)]
    assert other == [("b", step, ["a", "b"]) for step in range(3)]


def test_the_hindmost_catch_up_first() -> None:
    ahead, behind = run(steps("a", 2, 4), steps("b", 0, 4))
    assert behind == [("b", 0, ["b"]), ("b", 1, ["b"]), ("b", 2, ["a", "b"]), ("b", 3, ["a", "b"])]
    assert ahead == [("a", 2, ["a", "b"]), ("a", 3, ["a", "b"])]


def test_nobody_waits_for_one_that_has_ended_or_failed() -> None:
    def fails(here: Meeting) -> None:
        here.step("b", 0, together)
        raise ValueError("gone")

    one, other = run(steps("a", 0, 3), fails)
    assert one == [("a", 0, ["a", "b"]), ("a", 1, ["a"]), ("a", 2, ["a"])]
    assert isinstance(other, ValueError)


def test_what_fails_for_one_is_raised_for_that_one() -> None:
    def wrong(given: list[str], step: int) -> list[Any]:
        return [ValueError(each) if each == "b" else each for each in given]

    one, other = run(lambda here: here.step("a", 0, wrong)[0], lambda here: here.step("b", 0, wrong))
    assert one == "a"
    assert isinstance(other, ValueError)


def test_what_fails_as_a_whole_is_raised_for_all() -> None:
    def wrong(given: list[str], step: int) -> list[Any]:
        raise RuntimeError("no room")

    found = run(lambda here: here.step("a", 0, wrong), lambda here: here.step("b", 0, wrong))
    assert [type(each) for each in found] == [RuntimeError, RuntimeError]


def test_one_runs_at_a_time_unless_it_is_away() -> None:
    running: list[str] = []

    def works(name: str) -> Callable[[Meeting], bool]:
        def work(here: Meeting) -> bool:
            running.append(name)
            time.sleep(0.02)
            alone = running == [name]
            running.remove(name)
            with here.away():
                time.sleep(0.02)
            return alone and meeting() is here

        return work

    assert run(*map(works, "abc")) == [True, True, True]
    assert meeting() is None


def test_each_is_told_its_share_of_the_time() -> None:
    def slow(given: list[str], step: int) -> list[Any]:
        time.sleep(0.06)
        return given

    shares = run(*(lambda here, name=name: here.step(name, 0, slow)[1] for name in "abc"))
    assert shares[0] == shares[1] == shares[2]
    assert shares[0] >= 0.02


def test_all_end_when_they_are_given_up() -> None:
    def gives_up(here: Meeting) -> None:
        with here.away():
            time.sleep(0.02)
            here.give_up()

    waits, gone = run(steps("a", 0, 3), gives_up)
    assert isinstance(waits, GivenUp)
    assert isinstance(gone, GivenUp)
    here = Meeting()
    here.give_up()
    with pytest.raises(GivenUp, match="the other trials of this process were given up"):
        here.check()
