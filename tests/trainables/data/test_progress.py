"""Builds of data report their progress to a listener, and build the same data without one."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.contracts.test_tasks import oracle
from trainables import task_catalog
from trainables.data.progress import Watcher, report, report_waiting, watched_by
from trainables.data.split import content_hash


@contextmanager
def reports() -> Iterator[list[tuple[str, int, int]]]:
    progress: list[tuple[str, int, int]] = []
    with watched_by(Watcher(lambda *each: progress.append(each))):
        yield progress


def test_build_without_a_listener_reports_nothing() -> None:
    with reports() as raised:
        report("trees", 1, 2)
    report("trees", 2, 2)
    assert raised == [("trees", 1, 2)]
    assert not report_waiting("for nobody")


@pytest.mark.parametrize("name", ["algorithms", "flipflop", "listops", "logical_inference"])
def test_generator_reports_progress_and_builds_the_same_data(name: str) -> None:
    """The data differs from that of other tests, because cached data would not be built again."""
    raw = oracle(name).SMALL | {"data_seed": 1234}
    config, module = task_catalog.task_config(raw), task_catalog.task_module(name)
    split = next(info.name for info in module.splits(config) if not info.streamed)
    with reports() as raised:
        watched = content_hash(module.build(config, split))
    assert raised
    for unit, done, total in raised:
        assert unit.isalpha()
        assert 0 <= done <= total
    assert content_hash(module.build(config, split)) == watched
