"""Find flags of a script that an arm omits by null, although the script has a default for them."""

from collections.abc import Iterable, Iterator

from orchestrator.plan.types import Arm
from trainables.custom.script import default_of_omitted_flag
from trainables.custom.source_files import SCRIPT


def omitted_flag_warnings(trainable: str, arms: Iterable[Arm]) -> Iterator[str]:
    """Yield warnings for settings that an arm changes to null and for which the script has a default."""
    for arm in arms if trainable.endswith(SCRIPT) else ():
        for change in arm.changes:
            default = None if change.after is not None else default_of_omitted_flag(trainable, change.path)
            if default is not None:
                yield (
                    f"Warning: {arm.name}: {change.path} is null, which gives the script no flag, so it uses "
                    f"its default {default!r}. If the arm is to have no value, write one that the script "
                    "takes for none."
                )
