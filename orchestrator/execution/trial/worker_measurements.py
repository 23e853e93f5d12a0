"""Validate the steps, numbers and texts of reports. An invalid value ends the trial with an error."""

import json
import math
import operator
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from orchestrator.files.redact import escape_unstorable, escape_unstorable_values
from orchestrator.trials import MAX_NUMBER, Outcome, OutcomeKind
from search_spaces.wording import format_value
from trainables.protocol import Measurement, repeated_step_message

MAX_EXAMPLES_CHARS = 1 << 20
"""Maximum number of characters of one trial's examples as JSON, since the ledger stores them permanently."""
MAX_STEP_EXCLUSIVE = 2**63
"""Exclusive upper bound of steps, which are stored as 64-bit integers."""
MAX_TEXT_CHARS = 10_000
"""Maximum number of characters of a reported text; longer texts are cut."""


class BadMeasurement(Exception):
    """Raised for a report that cannot be recorded; `outcome` is the outcome of its trial."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.outcome = Outcome(OutcomeKind.CRASHED, message)


def validate_measurement(measurement: Measurement | None, last: Measurement | None) -> Measurement:
    """Return `measurement` with float metrics, texts as attributes, and storable names.

    Metrics that are None are removed. Metrics may be infinite or NaN; the conductor checks the metrics that
    must be finite.

    Args:
        measurement: The report of the workload.
        last: The previous report; None for the first one.

    Raises:
        BadMeasurement: The report is invalid or its step does not follow `last`.
    """
    if not isinstance(measurement, Measurement):
        requirement = "a workload must report a trainables.protocol.Measurement"
        raise BadMeasurement(f"{requirement}, got {_type_text(measurement)}; fix the code")
    step = _valid_step(measurement.step)
    if not isinstance(measurement.metrics, Mapping):
        raise BadMeasurement(
            f"metrics must be a mapping, got {_type_text(measurement.metrics)}; fix the code"
        )
    values_by_name: Mapping[Any, Any] = {**measurement.attributes, **measurement.metrics}
    reported_values = {
        _storable_name(name): value for name, value in values_by_name.items() if value is not None
    }
    texts = {name: _storable_text(value) for name, value in reported_values.items() if isinstance(value, str)}
    metrics = {
        name: _to_float(name, value, step) for name, value in reported_values.items() if name not in texts
    }
    seconds = _valid_seconds(measurement.seconds, step)
    if last is not None and step <= last.step:
        raise BadMeasurement(repeated_step_message(step, last.step))
    examples = _storable_examples(measurement.examples)
    return replace(
        measurement, step=step, seconds=seconds, metrics=metrics, examples=examples, attributes=texts
    )


def _storable_text(value: str) -> str:
    return escape_unstorable(value if len(value) <= MAX_TEXT_CHARS else f"{value[:MAX_TEXT_CHARS]} ... (cut)")


def _storable_examples(examples: Any) -> tuple[Mapping[str, Any], ...]:
    """Return the examples as JSON values that the ledger can store."""
    try:
        text = json.dumps(examples if examples else [], allow_nan=False)
        values = json.loads(text)
        is_listed = isinstance(values, list) and all(isinstance(example, dict) for example in values)
    except (TypeError, ValueError, RecursionError) as error:
        message = escape_unstorable(str(error))
        raise BadMeasurement(f"examples must be JSON values ({message}); fix the code") from error
    if not is_listed:
        raise BadMeasurement(f"examples must be a list of mappings, got {_type_text(examples)}; fix the code")
    if len(text) > MAX_EXAMPLES_CHARS:
        raise BadMeasurement(
            f"examples must have at most {MAX_EXAMPLES_CHARS:,} characters as JSON, got {len(text):,}; "
            "keep fewer, or less of each"
        )
    return tuple(escape_unstorable_values(values))


def _is_boolean(value: Any) -> bool:
    """Return whether a value is a bool of Python, NumPy or torch, probably a comparison without a mean."""
    return isinstance(value, bool) or str(getattr(value, "dtype", "")) in ("bool", "torch.bool")


def _valid_step(value: Any) -> int:
    shown_value: Any = "" if _is_boolean(value) else value
    try:
        step = operator.index(shown_value)
    except TypeError as error:
        raise BadMeasurement(
            f"a step must be a whole number, got {_quoted_value(value)}; fix the code"
        ) from error
    if not 0 <= step < MAX_STEP_EXCLUSIVE:
        raise BadMeasurement("a step must be from 0 to 2**63 - 1, got a number outside; fix the code")
    return step


def _valid_seconds(value: Any, step: int) -> float:
    """Return seconds as a float. Negative or infinite seconds are refused, since budgets add them up."""
    seconds = _to_float("seconds", value, step)
    if not 0 <= seconds <= MAX_NUMBER:
        raise BadMeasurement(
            f"seconds must be finite and 0 or more, got {seconds} at step {step}; fix the code"
        )
    return seconds


def _storable_name(name: Any) -> str:
    if not isinstance(name, str) or not name.strip():
        raise BadMeasurement(f"a metric must have a name, got {_quoted_value(name)}; fix the code")
    return escape_unstorable(name)


def _to_float(name: Any, value: Any, step: int) -> float:
    """Return any number of Python, NumPy or torch as a 64-bit float; booleans are refused."""
    if isinstance(value, float):
        return float(value)
    if _is_boolean(value):
        raise BadMeasurement(
            f"a metric must be a number, got {_type_text(value)} for {_quoted_value(name)} at step {step}: "
            "report a share, a count, or float(...) of the boolean"
        )
    shape = tuple(getattr(value, "shape", ()))
    if math.prod(shape) != 1:
        raise BadMeasurement(
            f"a metric must be one number, got {_type_text(value)} of shape {shape} for "
            f"{_quoted_name(name)} at step {step}; report its mean or one of its elements"
        )
    try:
        return _convert_to_float(value)
    except OverflowError as error:
        raise BadMeasurement(
            f"a metric must fit into a 64-bit float, got a larger number for {_quoted_name(name)}"
        ) from error
    except Exception as error:  # objects may raise any exception in a conversion to float
        raise BadMeasurement(
            f"a metric must be a number, got {_quoted_value(value)} for {_quoted_name(name)} at step "
            f"{step}; fix the code"
        ) from error


def _convert_to_float(value: Any) -> float:
    if isinstance(value, str | bytes | bytearray):
        raise TypeError("text is not a number, even if float() can parse it")
    # PyTorch warns about converting a tensor that requires a gradient.
    detach = getattr(value, "detach", None)
    plain_value = detach() if callable(detach) else value
    return float(plain_value.item() if getattr(plain_value, "shape", ()) else plain_value)


def _quoted_name(name: Any) -> str:
    return _quoted_value(name).removeprefix("the text ")


def _quoted_value(value: Any) -> str:
    return (
        escape_unstorable(format_value(value))
        if value is None or isinstance(value, str)
        else _type_text(value)
    )


def _type_text(value: object) -> str:
    return f"a {escape_unstorable(type(value).__name__)}"
