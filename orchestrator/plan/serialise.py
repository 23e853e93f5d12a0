"""Serialise plans as canonical JSON, so that equal plans give equal bytes, and read them back."""

import shlex
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from orchestrator.errors import StoreError
from orchestrator.files.file_digests import read_edition
from orchestrator.files.json_values import from_json_values, parse_json, to_json_values
from orchestrator.identity import SweepFolder, canonical
from orchestrator.plan.consistency import check_consistency
from orchestrator.plan.types import Plan
from orchestrator.trials import Phase

FORMAT: Final = 1
"""Version of the format; it increases if older plans can no longer be read."""
_LATER_PLAN_FIELDS: Final = ("continue_on_error", "extended", "factors", "keep", "selected_on")
_LATER_ARM_FIELDS: Final = ("first", "without", "context", "name_in_context", "control")
_LATER_ANSWER_FIELDS: Final = ("pooled", "moderated", "goal")
_LATER_TRIAL_FIELDS: Final = ("late_splits", "repeat", "settings_of")
_LATER_CONFIRM_FIELDS: Final = ("halting_examples", "cross", "resample_data")
_LATER_CHECK_FIELDS: Final = ("run_with",)
"""Fields added in later versions; they are left out if empty, so that older plans keep their bytes."""


def to_json(plan: Plan) -> str:
    """Return `plan` as one line of JSON with sorted keys."""
    values = to_json_values(plan)
    later_fields: list[tuple[dict[str, Any], tuple[str, ...]]] = [(values, _LATER_PLAN_FIELDS)]
    later_fields += [(arm, _LATER_ARM_FIELDS) for arm in values["arms"]]
    later_fields += [(trial, _LATER_TRIAL_FIELDS) for trial in values["trials"]]
    later_fields += [(proof, _LATER_CHECK_FIELDS) for proof in values["proofs"]]
    later_fields += [(values["answer"], _LATER_ANSWER_FIELDS)] if values["answer"] else []
    later_fields += [(values["confirm"], _LATER_CONFIRM_FIELDS)] if values["confirm"] else []
    for field_values, fields in later_fields:
        for field in fields:
            if not field_values[field]:
                del field_values[field]
    if values["search"] is not None and values["search"]["repeats"] == 1:
        del values["search"]["repeats"]
    if values["answer"] is not None and not values["answer"]["split"]:
        del values["answer"]["split"]
    return canonical({"format": FORMAT, **values})


def from_json(
    text: str | bytes, *, on_trials: Callable[[list[dict[str, Any]]], None] = lambda _: None
) -> Plan:
    """Return the plan from the text that `to_json` returned.

    Args:
        text: JSON of the plan.
        on_trials: Called with the values of the trials before they are parsed; it may remove some.

    Raises:
        StoreError: The text is not a valid plan.
    """
    try:
        data = parse_json(text)
        format_number = data.pop("format")
        on_trials(data["trials"])
        plan = from_json_values(Plan, data) if format_number == FORMAT else None
        if plan is not None:
            check_consistency(plan)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise StoreError(f"a plan must be JSON as haltsweep writes it, got {reason}") from error
    if plan is None:
        raise StoreError(f"a plan must have format {FORMAT}, got {format_number!r}: another version wrote it")
    return plan


def read_plan(folder: SweepFolder) -> Plan:
    """Return the plan of a sweep with all extensions; raise StoreError if it is missing or invalid."""
    return _read(folder, from_json)


def read_outline(folder: SweepFolder) -> tuple[Plan, Counter[tuple[str, Phase]]]:
    """Return the plan without its trials, and the number of trials by arm and phase.

    Raises:
        StoreError: The plan is missing or invalid.
    """
    counts: Counter[tuple[str, Phase]] = Counter()

    def count(trials: list[dict[str, Any]]) -> None:
        counts.update((trial["arm"], trial["phase"]) for trial in trials)
        trials.clear()

    return _read(folder, partial(from_json, on_trials=count)), counts


def _read(folder: SweepFolder, parse: Callable[[bytes], Plan]) -> Plan:
    try:
        text = read_edition(
            folder.plan,
            f"`haltsweep verify {shlex.quote(str(folder.root))} --repair` recreates it from spec.yaml, or "
            "restore it from a backup",
        )
        return _parse_plan(folder, text, parse)
    except OSError as error:
        raise StoreError(
            f"{str(folder.plan)!r} must hold the plan of a sweep and cannot be read "
            f"({error.strerror or error}); check the name of the sweep and the folder of the runs"
        ) from error


def _parse_plan(folder: SweepFolder, text: bytes, parse: Callable[[bytes], Plan]) -> Plan:
    try:
        return parse(text)
    except StoreError as error:
        raise StoreError(
            f"{folder.plan}: {error}; restore the file from a backup, or name the folder of a sweep"
        ) from error
