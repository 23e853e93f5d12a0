"""Builds of data report their progress to a listener, and build the same data without one."""

from tests.oracles.solvers.listops_solver import SMALL
from trainables import task_catalog
from trainables.data.progress import Watcher, report_to
from trainables.data.split import content_hash
from trainables.tasks import listops


def test_generator_reports_progress_and_builds_the_same_data() -> None:
    """The data differs from that of other tests, because cached data would not be built again."""
    config = task_catalog.task_config(SMALL | {"data_seed": 1234})
    reports: list[tuple[str, int, int]] = []
    with report_to(Watcher(lambda *report: reports.append(report))):
        watched = content_hash(listops.build(config, "valid"))
    assert reports
    assert all(unit.isalpha() and 0 <= num_done <= total for unit, num_done, total in reports)
    assert content_hash(listops.build(config, "valid")) == watched
