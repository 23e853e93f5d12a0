"""Builds tell how far they are, whoever listens; what is built is the same."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.contracts.test_tasks import oracle
from trainables import task_catalog
from trainables.data.progress import Watcher, report, report_waiting, watched_by
from trainables.data.split import content_hash


@contextmanager
def heard() -> Iterator[list[tuple[str, int, int]]]:
    shown: list[tuple[str, int, int]] = []
    with watched_by(Watcher(lambda *each: shown.append(each))):
        yield shown


def test_nothing_is_told_where_nobody_listens() -> None:
    with heard() as raised:
        report("trees", 1, 2)
    report("trees", 2, 2)
    assert raised == [("trees", 1, 2)]
    assert not report_waiting("for nobody")


@pytest.mark.parametrize("name", ["algorithms", "flipflop", "listops", "logical_inference"])
def test_generators_tell_how_far_they_are_and_build_the_same(name: str) -> None:
    """In other data than other tests build, since what is kept from there needs no building."""
    raw = oracle(name).SMALL | {"data_seed": 1234}
    config, module = task_catalog.task_config(raw), task_catalog.task_module(name)
    split = next(info.name for info in module.splits(config) if not info.streamed)
    with heard() as raised:
        watched = content_hash(module.build(config, split))
    assert raised
    for what, done, total in raised:
        assert what.isalpha()
        assert 0 <= done <= total
    assert content_hash(module.build(config, split)) == watched
