"""What a workload may report: steps and numbers; all else is the end of its trial, with a reason."""

import json
import math
import operator
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from orchestrator.redact import storable, storable_value
from orchestrator.trials import Outcome, OutcomeKind
from search_spaces.wording import shown
from trainables.protocol import Measurement

EXAMPLES_MOST = 1 << 20
"""Characters of what one trial may keep of single examples: it lies in the ledger for ever."""
STEP_END = 2**63
"""Steps are stored as integers of 64 bits."""
NUMBER_MOST = 1e70
"""Reports sum fourth powers of differences, which must stay finite; whatever is larger has diverged."""


class BadMeasurement(Exception):
    """A report that cannot be recorded; `outcome` is the end of its trial."""

    def __init__(self, message: str, kind: OutcomeKind = OutcomeKind.CRASHED) -> None:
        super().__init__(message)
        self.outcome = Outcome(kind, message)


def sound(measurement: Measurement | None, last: Measurement | None) -> Measurement:
    """`measurement` with plain numbers and storable names.

    Raises BadMeasurement if it cannot follow `last`.
    """
    if not isinstance(measurement, Measurement):
        raise BadMeasurement(
            f"a workload must report a trainables.protocol.Measurement, got {_kind(measurement)}; mend the "
            "code"
        )
    step = _step(measurement.step)
    if not isinstance(measurement.metrics, Mapping):
        raise BadMeasurement(f"metrics must be a mapping, got {_kind(measurement.metrics)}; mend the code")
    metrics = {_name(name): _number(name, value, step) for name, value in measurement.metrics.items()}
    seconds = _seconds(measurement.seconds, step)
    if last is not None and step <= last.step:
        raise BadMeasurement(f"steps must increase, got {step} after {last.step}; mend the code")
    examples = _examples(measurement.examples)
    return replace(measurement, step=step, seconds=seconds, metrics=metrics, examples=examples)


def _examples(given: Any) -> tuple[Mapping[str, Any], ...]:
    """What is kept of single examples, as the ledger can store it."""
    try:
        text = json.dumps(given if given else [], allow_nan=False)
        values = json.loads(text)
        listed = isinstance(values, list) and all(isinstance(each, dict) for each in values)
    except (TypeError, ValueError, RecursionError) as error:
        message = storable(str(error))
        raise BadMeasurement(f"examples must be JSON values ({message}); mend the code") from error
    if not listed:
        raise BadMeasurement(f"examples must be a list of mappings, got {_kind(given)}; mend the code")
    if len(text) > EXAMPLES_MOST:
        raise BadMeasurement(
            f"examples must have at most {EXAMPLES_MOST:,} characters as JSON, got {len(text):,}; "
            "keep fewer, or less of each"
        )
    return tuple(storable_value(values))


def _is_truth_value(value: Any) -> bool:
    """Python's, or a NumPy or torch scalar of that kind: a comparison that was not averaged, most likely."""
    return isinstance(value, bool) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool")


def _step(value: Any) -> int:
    given: Any = "" if _is_truth_value(value) else value
    try:
        step = operator.index(given)
    except TypeError as error:
        raise BadMeasurement(f"a step must be a whole number, got {_quoted(value)}; mend the code") from error
    if not 0 <= step < STEP_END:
        raise BadMeasurement("a step must be from 0 to 2**63 - 1, got one beyond; mend the code")
    return step


def _seconds(value: Any, step: int) -> float:
    """Time is no quantity that diverges, and less than none would be given back to a budget."""
    try:
        seconds = _number("seconds", value, step)
    except BadMeasurement as error:
        raise BadMeasurement(str(error)) from error
    if seconds < 0:
        raise BadMeasurement(f"seconds must be 0 or more, got {seconds} at step {step}; mend the code")
    return seconds


def _name(name: Any) -> str:
    if not isinstance(name, str) or not name.strip():
        raise BadMeasurement(f"a metric must have a name, got {_quoted(name)}; mend the code")
    return storable(name)


def _number(name: Any, value: Any, step: int) -> float:
    """Of Python's, NumPy's and torch's numbers, all whose fourth powers are 64-bit floats; no truth value."""
    if isinstance(value, float) and -NUMBER_MOST <= value <= NUMBER_MOST:
        return float(value)
    if _is_truth_value(value):
        raise BadMeasurement(
            f"a metric must be a number, got {_kind(value)} for {_quoted(name)} at step {step}: report a "
            "share or a count, or float(...) of it if 0 and 1 are meant"
        )
    try:
        number = _float(value)
    except OverflowError as error:
        raise BadMeasurement(
            f"a metric must fit into a 64-bit float, got one beyond for {_named(name)}"
        ) from error
    except Exception as error:  # whatever an object raises that is no number
        raise BadMeasurement(
            f"a metric must be a number, got {_quoted(value)} for {_named(name)} at step {step}; mend the "
            "code"
        ) from error
    if not math.isfinite(number):
        message = f"metrics must stay finite, got {name}={number} at step {step}"
        raise BadMeasurement(storable(message), OutcomeKind.DIVERGED)
    if abs(number) > NUMBER_MOST:
        message = f"metrics must stay within {NUMBER_MOST:g}, got {name}={number} at step {step}"
        raise BadMeasurement(storable(message), OutcomeKind.DIVERGED)
    return number


def _float(value: Any) -> float:
    if isinstance(value, str | bytes | bytearray):
        raise TypeError("text is no number, even where it can be read as one")
    # PyTorch warns of tensors that a gradient could still be asked of.
    detach = getattr(value, "detach", None)
    return float(detach() if callable(detach) else value)


def _named(name: Any) -> str:
    return _quoted(name).removeprefix("the text ")


def _quoted(value: Any) -> str:
    return storable(shown(value)) if value is None or isinstance(value, str) else _kind(value)


def _kind(value: object) -> str:
    return f"a {storable(type(value).__name__)}"
