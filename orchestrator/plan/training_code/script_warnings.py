"""Warn about scripts that may not report, and about flags that an arm omits although they have a default."""

from collections.abc import Iterator, Sequence

from orchestrator.plan.types import Arm
from trainables.custom.script import METRICS, Script, default_of_omitted_flag
from trainables.custom.source_files import OWN_PACKAGES, script_command, source_contains


def script_warnings(trainable: str, arms: Sequence[Arm]) -> Iterator[str]:
    """Yield warnings about a trainable that is a script; none for other trainables."""
    if script_command(trainable) is not None:
        yield from _missing_report_warnings(trainable, arms)
        yield from _omitted_flag_warnings(trainable, arms)


def _missing_report_warnings(script: str, arms: Sequence[Arm]) -> Iterator[str]:
    """Yield a warning if neither the code of a script nor its settings name a way to report."""
    is_in_settings = any(METRICS in str(arm.settings) for arm in arms)
    if not is_in_settings and not any(source_contains(script, word) for word in (METRICS, OWN_PACKAGES[0])):
        yield (
            f"Warning: {script} names neither {METRICS} nor haltsweep, so it may report nothing, and every "
            f"trial would fail. To report, {Script.how_to_report}."
        )


def _omitted_flag_warnings(script: str, arms: Sequence[Arm]) -> Iterator[str]:
    """Yield warnings for settings that an arm changes to null and for which the script has a default."""
    for arm in arms:
        for change in arm.changes:
            default = None if change.after is not None else default_of_omitted_flag(script, change.path)
            if default is not None:
                yield (
                    f"Warning: {arm.name}: {change.path} is null, which gives the script no flag, so it uses "
                    f"its default {default!r}. If the arm is to have no value, write one that the script "
                    "takes for none."
                )
