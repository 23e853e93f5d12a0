"""Write a first spec for an argparse script."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orchestrator.cli.script_flags import Flag, ScriptFlags, read_script
from orchestrator.errors import InputError
from orchestrator.spec.scalars import dump

MAX_ARMS = 3
SEEDS = 5
METRIC = "valid/loss"
"""Metric of the spec if the script names none."""
HOW_TO_REPORT = """\
# The script must report: append {"step": 1, "valid/loss": 0.5} as a line of JSON to metrics.jsonl in its
# working folder, or call haltsweep.current_trial().report(1, {"valid/loss": 0.5}).
"""


def write_spec_for_script(file: Path) -> str:
    """Return a spec with the flags of a script as settings, and with an arm for each of a few flags.

    Raises:
        InputError: The script is unreadable, is not valid Python, or adds no flags to an argument parser.
    """
    try:
        script = read_script(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{file}: cannot be read: {(getattr(error, 'strerror', None) or str(error)).lower()}"
        ) from error
    except SyntaxError as error:
        raise InputError(f"{file}:{error.lineno}: must be Python, got: {error.msg}") from error
    settings = {flag.name: flag.default for flag in script.flags if flag.default is not None}
    arms = dict(list(_example_arms(script))[:MAX_ARMS])
    if not settings or not arms:
        raise InputError(
            f"{file}: must add flags with defaults to an argparse parser, such as "
            'parser.add_argument("--lr", type=float, default=0.1), got none; '
            "`haltsweep new own` writes an example of a training function"
        )
    return "".join(_lines(file, script, settings, arms))


def _lines(
    file: Path, script: ScriptFlags, settings: dict[str, Any], arms: dict[str, dict[str, Any]]
) -> Iterator[str]:
    name = re.sub(r"[^a-z0-9]+", "-", file.stem.lower()).strip("-") or "study"
    yield f"name: {name}\nquestion: What do you want to know?\ntrainable: {file}\n"
    if not script.reports:
        yield HOW_TO_REPORT
    yield "baseline:\n"
    for key, value in settings.items():
        yield f"  {key}: {dump(value, flow=True)}\n"
    for flag in script.flags:
        if flag.is_required and flag.default is None:
            yield f"  # {flag.name}: the script requires a value\n"
    yield "arms: # the baseline with only these settings changed; write your own\n"
    for arm, changed in arms.items():
        yield f"  {arm}: {dump({'why': 'say why', 'set': changed}, flow=True)}\n"
    metric = _metric(script)
    tested = metric.startswith("test")
    splits = ", splits: [test]" if tested else ""
    split = "" if "/" in metric else f", split: {'test' if tested else 'valid'}"
    comment = "" if script.metrics else " # replace it by a metric that the script reports"
    yield f"confirm: {{seeds: {SEEDS}{splits}}}\nanswer: {{metric: {metric}{split}}}{comment}\n"


def _metric(script: ScriptFlags) -> str:
    """Return a metric of a test split if there is one, else the first or the default metric."""
    return next((name for name in script.metrics if name.startswith("test")), (*script.metrics, METRIC)[0])


def _example_arms(script: ScriptFlags) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield arm names and their settings: switches first, then other choices, then doubled numbers."""
    with_default = [flag for flag in script.flags if flag.default is not None]
    switches = [flag for flag in with_default if flag.is_switch or isinstance(flag.default, bool)]
    for flag in switches:
        yield f"{'minus' if flag.default else 'plus'}-{_arm(flag)}", {flag.name: not flag.default}
    for flag in with_default:
        choices = [choice for choice in flag.choices if choice != flag.default]
        if choices:
            yield f"{_arm(flag)}-{_word(choices[0])}", {flag.name: choices[0]}
    for flag in with_default:
        is_number = isinstance(flag.default, int | float) and not isinstance(flag.default, bool)
        if is_number and flag.default and not flag.choices:
            yield f"twice-{_arm(flag)}", {flag.name: 2 * flag.default}


def _arm(flag: Flag) -> str:
    return _word(flag.name)


def _word(value: object) -> str:
    return re.sub(r"[^a-z0-9]+", "-", str(value).lower()).strip("-")
