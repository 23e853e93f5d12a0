"""Whether the parts of a bundle say the same: spec and plan what the sessions in its ledger ran by."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from orchestrator.bundle.contents import PLAN
from orchestrator.json_values import parsed
from orchestrator.plan.types import Plan

SPEC: Final = "spec.yaml"
DATA: Final = "data.json"


def disagreements(
    plan: Plan, sessions: Sequence[Mapping[str, Any]], digests: Mapping[str, Any]
) -> Iterator[str]:
    """What `plan` and the files of these `digests` say otherwise than the `opened` events `sessions`.

    The last session counts; where the sweep was extended and nothing has run since, the edition before.
    Ledgers from before sessions kept digests of both files know that of the spec's content alone.
    """
    if not sessions:
        return
    last, before = sessions[-1], f"extensions/{len(plan.extended) - 1}/"
    specs = {plan.spec_digest, *(each.spec_digest for each in plan.extended[-1:])}
    if last.get("spec_digest") not in specs:
        yield f"the spec of {PLAN} must be that of the ledger, {last['spec_digest']}, got {plan.spec_digest}"
    files = last.get("provenance", {}).get("files")
    for name, digest in files.items() if isinstance(files, dict) else ():
        if digest not in (digests.get(name), digests.get(before + name)):
            here = digests.get(name)
            yield f"{name} must be that by which trials ran, digest {digest} in the ledger, got {here}"


def data_fault(folder: Path) -> str:
    """Why data.json holds no digests of data; empty if it does, or is not there."""
    try:
        found = parsed((folder / DATA).read_bytes())
    except FileNotFoundError:
        return ""
    except (ValueError, RecursionError) as error:
        return f"{DATA} must be JSON as `haltsweep bundle` writes it: {error}"
    if isinstance(found, dict) and all(isinstance(each, str) for each in found.values()):
        return ""
    return f"{DATA} must hold digests of data by name, got {json.dumps(found)[:40]}"
