"""Provide the common parts of all contracts: cases per argument, contract classes, failures, stopped runs."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import torch

from trainables.custom.extensions import BadName
from trainables.protocol import Job, Measurement, Workload

if TYPE_CHECKING:
    import pytest

Class = TypeVar("Class", bound="type[Contract]")
AnyWorkload = TypeVar("AnyWorkload", bound=Workload)
REPORTS_MAX = 10_000
"""Number of reports after which a trial is assumed never to end."""


class Contract:
    """Base class of tests. A test method with an argument `x` runs for each case that `every_x` returns."""

    none: ClassVar[Mapping[str, str]] = {}
    """Reasons to skip the tests of an argument if it has no cases, by argument."""

    def pytest_generate_tests(self, metafunc: "pytest.Metafunc") -> None:
        """Parametrise a test method; called by pytest."""
        import pytest

        for argument in metafunc.fixturenames:
            list_cases = getattr(self, f"every_{argument}", None)
            if list_cases is None:
                continue
            try:
                cases: Mapping[str, Any] = list_cases()
            except (BadName, ValueError) as error:
                raise pytest.Collector.CollectError(f"{type(self).__name__}: {error}") from error
            skip_mark = pytest.mark.skip(reason=self.none.get(argument, "no case"))
            empty_cases = [] if cases else [pytest.param(None, id="none", marks=skip_mark)]
            values = [pytest.param(value, id=label) for label, value in cases.items()]
            metafunc.parametrize(argument, values + empty_cases)


def contract_class(contract: Class, **attributes: Any) -> Class:
    """Return a subclass of `contract` that pytest collects under any name.

    Raises:
        ImportError: pytest is not installed.
        TypeError: The contract has no such attribute; a misspelt attribute would silently skip tests.
    """
    test_names = [name for name in dir(contract) if not name.startswith("_")]
    for name in attributes:
        if name not in test_names and name != "pytestmark":
            similar_names = get_close_matches(name, test_names, n=1)
            hint = f". Did you mean {similar_names[0]!r}?" if similar_names else ""
            raise TypeError(f"{contract.__name__} has no attribute {name!r}{hint}")
    try:
        import pytest  # noqa: F401 pytest runs the class
    except ModuleNotFoundError as error:
        raise ImportError("contract tests are run by pytest: pip install pytest") from error
    return type(contract.__name__, (contract,), {**attributes, "__test__": True})  # type: ignore[return-value]


def check(condition: object, message: str) -> None:
    """Fail with `message` unless `condition` is true; pytest explains `assert` in test files only."""
    __tracebackhide__ = True
    if not condition:
        raise AssertionError(message)


def check_close(actual: torch.Tensor, expected: torch.Tensor, subject: str) -> None:
    """Fail unless two tensors are equal up to rounding; the message begins with `subject`."""
    __tracebackhide__ = True
    torch.testing.assert_close(actual, expected, msg=lambda difference: f"{subject}\n{difference}")


def run_uninterrupted(make: Callable[[Job], AnyWorkload], job: Job) -> tuple[list[Measurement], AnyWorkload]:
    """Run a trial without interruption; return its measurements and its workload, which is not closed."""
    workload, measurements = make(job), []
    while not workload.finished:
        if (measurement := workload.advance()) is not None:
            measurements.append(measurement)
        if len(measurements) > REPORTS_MAX:
            raise AssertionError(f"a trial must end, got {REPORTS_MAX:,} reports and no end")
    return measurements, workload


def run_interrupted(
    make: Callable[[Job], AnyWorkload], job: Job, folder: Path
) -> tuple[list[Measurement], AnyWorkload]:
    """Run a trial that is saved, closed and resumed at every report; return measurements and last workload.

    Checkpoints are written into the empty `folder`.
    """
    workload, measurements = make(job), []
    while not workload.finished:
        measurement = workload.advance()
        if measurement is None:
            continue
        measurements.append(measurement)
        checkpoint_folder = folder / str(len(measurements))
        checkpoint_folder.mkdir()
        workload.save(checkpoint_folder)
        workload.close()
        workload = make(job)
        workload.restore(checkpoint_folder)
        if len(measurements) > REPORTS_MAX:
            raise AssertionError(f"a resumed trial must end, got {REPORTS_MAX:,} reports and no end")
    return measurements, workload
