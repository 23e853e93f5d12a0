"""The number of digits that a report shows."""

import pytest

from orchestrator.report.results.number_formats import format_interval, format_number, format_p
from orchestrator.report.results.statistics import Estimate


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ((0.9, 0.88, 0.92), "+0.900 [+0.880, +0.920]"),
        ((0.0002, 0.00019, 0.00021), "+0.00020 [+0.00019, +0.00021]"),
        ((-0.002, -0.004, -0.0004), "-0.00200 [-0.00400, -0.00040]"),
        ((1e-17, 0.9e-17, 1.1e-17), "+1e-17 [+9e-18, +1.1e-17]"),
        ((-0.2, -0.4, 1e-14), "-0.200 [-0.400, 0.000]"),
        ((150.0, 149.0, 151.0), "+150 [+149, +151]"),
        # Intervals around 0 and rounding errors of numbers near 1 need no more digits.
        ((0.002, -0.0004, 0.004), "+0.002 [-0.001, +0.004]"),
        ((1e-17, -1e-17, 1e-16), "0.000 [0.000, 0.000]"),
    ],
)
def test_interval_that_excludes_zero_never_displays_it(bounds, expected):
    assert format_interval(Estimate(8, *bounds), "+") == expected


@pytest.mark.parametrize(
    ("bounds", "margin", "expected"),
    [
        ((0.0, -0.00166, 0.001), 0.0017, "0.0000 [-0.0017, +0.0010]"),
        ((0.002, -0.0104, 0.009), 0.01, "+0.002 [-0.011, +0.009]"),
        ((120.0, 100.0, 130.55), 130.57, "+120.00 [+100.00, +130.55]"),
        ((0.0, -0.4, 0.5), 0.01, "0.000 [-0.400, +0.500]"),
    ],
)
def test_rounding_moves_no_interval_end_across_the_margin(bounds, margin, expected):
    assert format_interval(Estimate(8, *bounds), "+", margin) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.25, "0.250"), (-0.00042, "-0.00042"), (1e-14, "1e-14"), (1e-15, "0.000"), (250.4, "250")],
)
def test_small_number_is_not_rounded_to_zero(value, expected):
    assert format_number(value) == expected


@pytest.mark.parametrize(
    ("p", "level", "expected"),
    [
        (0.0123, 0.05, "0.012"),
        (0.0499, 0.05, "0.05"),
        (0.0504, 0.05, "0.0504"),
        (0.0500000001, 0.05, "just above 0.05"),
    ],
)
def test_rounding_moves_no_p_value_across_the_level(p, level, expected):
    assert format_p(p, level) == expected
