"""Write a first spec for an argparse script."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orchestrator.cli.script_flags import Flag, ScriptFlags, read_script
from orchestrator.errors import InputError
from orchestrator.files.redact import is_named_secret
from orchestrator.spec.metric_splits import is_named_for_test_data
from orchestrator.spec.placeholders import ARM_REASON, QUESTION
from orchestrator.spec.scalars import dump
from trainables.metrics import usual_goal

MAX_ARMS = 3
NUM_SEEDS = 5
DEFAULT_METRIC = "valid/loss"
"""Metric of the spec if the script names none."""
LEARNING_RATE_FLAGS = ("lr", "learning_rate")
LENGTH_WORDS = frozenset(["epoch", "epochs", "step", "steps", "iter", "iters", "iterations"])
_RUN_WORDS = (
    "resume sample only eval evaluate test split splits phase mode worker workers device cuda gpu gpus "
    "cpu mps seed dataset dir path folder out output log logging wandb tensorboard save checkpoint "
    "ckpt interval verbose debug dry port rank compile print accel accelerator amp onnx export"
)
RUN_CONTROL_WORDS = LENGTH_WORDS.union(_RUN_WORDS.split())
"""Words in names of flags that concern the run instead of the model or the optimiser."""
PREFERRED_WORDS = frozenset(["layer", "layers", "depth"])
"""Words in names of numeric flags; arms that double a number prefer these flags."""
REMOVABLE_PART = re.compile(
    r"(\w+_)?dropout(_rate|_prob|_p)?|weight_decay|momentum|label_smoothing", re.IGNORECASE
)
"""Names of numeric flags that remove a part of the training if set to 0."""
REPORT_COMMENT = """\
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
        cause = getattr(error, "strerror", None) or str(error)
        raise InputError(f"{file}: cannot be read: {cause.lower()}") from error
    except SyntaxError as error:
        raise InputError(f"{file}:{error.lineno}: must be Python, got: {error.msg}") from error
    settings = {
        flag.name: flag.default
        for flag in script.flags
        if flag.default is not None and not _reason_to_omit(flag)
    }
    arms = dict(_example_arms(script))
    # The search of the spec varies the learning rate, so arms set it only if there are no others.
    arms = {
        name: changes for name, changes in arms.items() if not changes.keys() & {*LEARNING_RATE_FLAGS}
    } or arms
    arms = dict(list(arms.items())[:MAX_ARMS])
    if not settings or not arms:
        raise InputError(
            f"{file}: must add flags of the model or optimiser with defaults to an argparse parser, such as "
            'parser.add_argument("--lr", type=float, default=0.1), got none; '
            "`haltsweep new own` writes an example of a training function"
        )
    return "".join(_spec_lines(file, script, settings, arms))


def _spec_lines(
    file: Path, script: ScriptFlags, settings: dict[str, Any], arms: dict[str, dict[str, Any]]
) -> Iterator[str]:
    name = re.sub(r"[^a-z0-9]+", "-", file.stem.lower()).strip("-") or "study"
    yield f"name: {name}\nquestion: {QUESTION}\ntrainable: {file}\n"
    if not script.reports:
        yield REPORT_COMMENT
    yield "baseline:\n"
    for key, value in settings.items():
        may_be_endless = value == -1 and LENGTH_WORDS & _split_words(key)
        comment = " # may be endless: set a length, as every trial must end" if may_be_endless else ""
        yield f"  {key}: {dump(value, flow=True)}{comment}\n"
    for flag in script.flags:
        if flag.is_required and flag.default is None:
            yield f"  # {flag.name}: the script requires a value\n"
        elif reason := _reason_to_omit(flag):
            yield f"  # {flag.name}: {reason}\n"
    yield "arms: # the baseline with only these settings changed; write your own\n"
    for arm, changes in arms.items():
        yield f"  {arm}: {dump({'why': ARM_REASON, 'set': changes}, flow=True)}\n"
    yield from _search_sketch(script, settings)
    metric = _choose_metric(script)
    is_test_metric = is_named_for_test_data(metric)
    splits = ", splits: [test]" if is_test_metric else ""
    split = "" if "/" in metric else f", split: {'test' if is_test_metric else 'valid'}"
    comment = "" if script.metrics else " # replace it by a metric that the script reports"
    goal = f", goal: {usual}" if (usual := usual_goal(metric)) else ""
    yield f"confirm: {{seeds: {NUM_SEEDS}{splits}}}\nanswer: {{metric: {metric}{goal}{split}}}{comment}\n"


def _reason_to_omit(flag: Flag) -> str:
    """Return why the default of a flag is no setting of the baseline; empty if it is one."""
    if is_named_secret(flag.name):
        return "left out, since it may be a secret"
    if not flag.is_read_back:
        return "left out, since the script reads the text of its default as another value"
    return ""


def _choose_metric(script: ScriptFlags) -> str:
    """Return a metric of a test split if there is one, else the first or the default metric."""
    return next(filter(is_named_for_test_data, script.metrics), (*script.metrics, DEFAULT_METRIC)[0])


def _search_sketch(script: ScriptFlags, settings: dict[str, Any]) -> Iterator[str]:
    """Yield a search of the learning rate as a comment, if the script has one."""
    name = next((name for name in LEARNING_RATE_FLAGS if _is_number(settings.get(name))), None)
    if name is None or settings[name] <= 0:
        return
    low, high = (float(f"{settings[name] * factor:.3g}") for factor in (0.1, 10))
    search_metrics = [name for name in script.metrics if not is_named_for_test_data(name)]
    metric = next(iter(search_metrics), DEFAULT_METRIC)
    goal = usual_goal(metric) or "min"
    yield "# Remove these marks to search the learning rate of every arm by a metric of validation data.\n"
    yield "# Then answer must name a metric of test data, which the script reports only if\n"
    yield "# haltsweep.current_trial().splits is not empty.\n"
    if not search_metrics:
        yield f"# The script must report {metric} for this.\n"
    yield "# search:\n"
    yield f"#   also: {{{name}: {{float: [{low}, {high}], log: true}}}}\n"
    yield f"#   trials_per_arm: 8\n#   objectives: [{{metric: {metric}, goal: {goal}}}]\n"


def _example_arms(script: ScriptFlags) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and settings of example arms for flags.

    First come parts of the training that are removed, then choices, switches and doubled numbers.
    """
    flags = [
        flag
        for flag in script.flags
        if flag.default is not None
        and not RUN_CONTROL_WORDS & _split_words(flag.name)
        and not _reason_to_omit(flag)
    ]
    numbers = [flag for flag in flags if _is_number(flag.default) and flag.default > 0 and not flag.choices]
    for flag in numbers:
        if REMOVABLE_PART.fullmatch(flag.name):
            yield f"minus-{_name_part(flag.name)}", {flag.name: type(flag.default)(0)}
    for flag in flags:
        choices = [choice for choice in flag.choices if choice != flag.default]
        if choices:
            yield f"{_name_part(flag.name)}-{_name_part(choices[0])}", {flag.name: choices[0]}
    for flag in flags:
        if flag.is_switch or isinstance(flag.default, bool):
            yield (
                f"{'minus' if flag.default else 'plus'}-{_name_part(flag.name)}",
                {flag.name: not flag.default},
            )
    # A number just below 1 may be a share, which cannot be doubled.
    numbers = [
        flag for flag in numbers if not REMOVABLE_PART.fullmatch(flag.name) and not 0.5 < flag.default < 1
    ]
    for flag in sorted(numbers, key=lambda flag: not PREFERRED_WORDS & _split_words(flag.name)):
        yield f"twice-{_name_part(flag.name)}", {flag.name: 2 * flag.default}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _split_words(name: str) -> set[str]:
    return set(re.findall(r"[a-z]+", name.lower()))


def _name_part(value: object) -> str:
    return re.sub(r"[^a-z0-9]+", "-", str(value).lower()).strip("-")
