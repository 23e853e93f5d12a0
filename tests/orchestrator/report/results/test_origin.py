"""Provenance on the page is that of the records, each value once, and nobody's mark-up."""

from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from orchestrator.report.writers.page import html_page
from tests.orchestrator.report.studies import Study, study
from tests.orchestrator.report.writers.test_page import EVIL, read, shown

PACKAGES = ["numpy==2.1", "torch==2.9"]
KNOWN = {
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


def made_with(*sessions: Mapping[str, Any]) -> Study:
    """Trials of these sessions in turn."""
    made = study(2, seeds=2, trials=0)
    records = [
        replace(each, provenance=sessions[place % len(sessions)]) for place, each in enumerate(made.records)
    ]
    return replace(made, records=tuple(records))


def test_each_item_of_provenance_is_listed_once() -> None:
    made = made_with(KNOWN)
    origin = dict(made.details().origin)
    digest = blake2b(b"numpy==2.1\ntorch==2.9", digest_size=8).hexdigest()
    assert origin["commit of the code of haltsweep"] == "c0de00"
    assert origin["installed packages"] == f"2, digest {digest}"
    assert origin["data, listops/train"] == "11aa"
    assert origin["data, listops/near-iid"] == "22bb"
    assert origin["processor"] == "a processor"
    assert origin["GPUs"] == "a GPU"
    assert origin["seeds of confirm trials"] == "101, 102"
    seen = shown(made)
    assert all(message in seen.text for pair in origin.items() for message in pair)
    assert "numpy==2.1\ntorch==2.9\n" in seen.text
    assert "-x = 1\n+x = 2 < 3\n" in seen.text
    assert seen.tags.count("details") == 2


def test_differing_sessions_are_both_listed() -> None:
    later = {**KNOWN, "packages": ["numpy==2.2"], "data": {"listops/train": "33cc"}, "code_diff": ""}
    found = made_with(KNOWN, later).details()
    assert dict(found.origin)["data, listops/train"] == "11aa; 33cc"
    assert [lines for _, lines in found.listings] == [
        tuple(PACKAGES),
        ("numpy==2.2",),
        ("-x = 1", "+x = 2 < 3"),
    ]


def test_user_texts_are_escaped() -> None:
    bad = {**KNOWN, "code_diff": f"+{EVIL}\n</pre>", "packages": [EVIL], "data": {EVIL: EVIL}}
    made = made_with(bad)
    html = html_page(made.report(), made.details())
    assert "script" not in read(html).tags
    assert "\x1b" not in html
    assert "</pre>" in read(html).text
