"""The page lists the provenance of the records once per value and without markup."""

from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any

import pytest

from tests.orchestrator.report.studies import Study, make_study
from tests.orchestrator.report.writers.test_page import parse_page

PACKAGES = ["numpy==2.1", "torch==2.9"]
PROVENANCE = {
    "commit": "f01de2",
    "code_commit": "c0de00",
    "code_changes": "abc123",
    "code_diff": "-x = 1\n+x = 2 < 3",
    "packages": PACKAGES,
    "data": {"listops/train": "11aa", "listops/near-iid": "22bb"},
    "cpu": "a processor",
    "cpu_count": 4,
    "devices": ["a GPU"],
}


def build_study(*sessions: Mapping[str, Any]) -> Study:
    """Return a study whose trials come from these sessions in turn."""
    two_arm_study = make_study(2, seeds=2, trials=0)
    records = [
        replace(record, provenance=sessions[position % len(sessions)])
        for position, record in enumerate(two_arm_study.records)
    ]
    return replace(two_arm_study, records=tuple(records))


@pytest.mark.usefixtures("undrawn")
def test_each_item_of_provenance_is_listed_once() -> None:
    origin_study = build_study(PROVENANCE)
    origin = dict(origin_study.details().origin)
    digest = blake2b(b"numpy==2.1\ntorch==2.9", digest_size=8).hexdigest()
    assert {"c0de00", f"2, digest {digest}", "a processor", "a GPU", "101, 102"} <= set(origin.values())
    assert origin["data, listops/train"] == "11aa"
    assert origin["data, listops/near-iid"] == "22bb"
    page = parse_page(origin_study)
    assert all(message in page.text for pair in origin.items() for message in pair)
    assert "numpy==2.1\ntorch==2.9\n" in page.text
    assert "-x = 1\n+x = 2 < 3\n" in page.text
    assert page.tags.count("details") == 2


def test_differing_sessions_are_both_listed() -> None:
    later_provenance = {
        **PROVENANCE,
        "packages": ["numpy==2.2"],
        "data": {"listops/train": "33cc"},
        "code_diff": "",
    }
    details = build_study(PROVENANCE, later_provenance).details()
    assert dict(details.origin)["data, listops/train"] == "11aa; 33cc"
    assert [lines for _, lines in details.listings] == [
        tuple(PACKAGES),
        ("numpy==2.2",),
        ("-x = 1", "+x = 2 < 3"),
    ]
