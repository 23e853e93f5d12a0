"""Whether trials ran different code: then a difference between arms may be one of code."""

from collections import Counter
from collections.abc import Sequence

from orchestrator.provenance import OURS
from orchestrator.trials import Record
from search_spaces.wording import amount

DIGITS = 8
"""Of a digest, those that are shown."""
CAVEAT = "differences between arms may be differences of code"


def code_versions(records: Sequence[Record]) -> str:
    """One sentence where trials that ended ran different code; else empty.

    A record from before the digests of parts were kept has that of the whole.
    """
    ended = [each.provenance for each in records if each.outcome is not None]
    found: dict[str, Counter[str]] = {}
    for each in ended:
        for part, digest in (each.get("code_parts") or {}).items():
            found.setdefault(str(part), Counter())[str(digest)] += 1
    if not all("code_parts" in each for each in ended):
        found["code"] = Counter(str(each["code"]) for each in ended if each.get("code"))
    differing = [_versions(part, counts) for part, counts in sorted(found.items()) if len(counts) > 1]
    return f"Trials ran {' and '.join(differing)}: {CAVEAT}." if differing else ""


def _versions(part: str, counts: Counter[str]) -> str:
    which = "; ".join(f"{digest[:DIGITS]}: {amount(count, 'trial')}" for digest, count in counts.items())
    what = {OURS: OURS, "code": "the code"}.get(part, f"the training code ({part})")
    return f"{len(counts)} versions of {what} (digest {which})"
