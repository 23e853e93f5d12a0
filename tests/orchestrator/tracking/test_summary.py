"""The summary of a report is sent to another process."""

import os

from orchestrator.tracking.summary import ArmSummary, SummaryFile, read_summary

SUMMARY = ArmSummary({"wide": {"b": 0.5, "a": 0.25}}, {"wide": {"verdict": "one\ntwo"}})


def test_summary_can_be_read_several_times() -> None:
    file = SummaryFile()
    assert read_summary(file.fd) is None
    file.write(SUMMARY)
    summary = read_summary(file.fd)
    assert summary == read_summary(file.fd) == SUMMARY
    assert list(SUMMARY.metrics["wide"]) == list(summary.metrics["wide"])
    file.close()


def test_incomplete_summary_is_ignored() -> None:
    file = SummaryFile()
    file.write(SUMMARY)
    for size in reversed(range(os.fstat(file.fd).st_size)):
        os.ftruncate(file.fd, size)
        assert read_summary(file.fd) is None
    file.close()
