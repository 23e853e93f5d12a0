"""Trials of one sweep are compared with each other: they must run the same training code."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.errors import InputError
from orchestrator.plan.types import Plan
from orchestrator.provenance import OURS
from orchestrator.trials import Record
from search_spaces.wording import amount


def require_same_code(plan: Plan, known: Sequence[Record], origin: Mapping[str, Any]) -> None:
    """Raises InputError if trials have run training code from outside that is not that of `origin`.

    Another haltsweep, and trials from before these digests were kept, are no reason: the report tells them.
    """
    ran = [each.provenance.get("code_parts") or {} for each in known if each.attempts]
    for part, now in origin.get("code_parts", {}).items():
        before = Counter(each[part] for each in ran if part in each)
        if part == OURS or not before or now in before:
            continue
        which = ", ".join(f"{digest} ({amount(count, 'trial')})" for digest, count in before.items())
        raise InputError(
            f"trials of one sweep must run the same training code, and {part} of {plan.name} was changed "
            f"since trials ran: digest {which}, now {now}; put it back, launch a new sweep under another "
            "name, or go on all the same with --changed-code, of which the report tells first"
        )
