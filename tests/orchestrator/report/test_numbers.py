"""Digits that a report shows."""

import pytest

from orchestrator.report.results.number_formats import format_interval, format_number, format_p
from orchestrator.report.results.statistics import Estimate
from orchestrator.report.writers.tables import outcome_table, search_table
from tests.orchestrator.report.studies import study


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ((0.9, 0.88, 0.92), "+0.900 [+0.880, +0.920]"),
        ((0.0002, 0.00019, 0.00021), "+0.00020 [+0.00019, +0.00021]"),
        ((-0.002, -0.004, -0.0004), "-0.00200 [-0.00400, -0.00040]"),
        ((1e-9, 0.9e-9, 1.1e-9), "+1e-09 [+9e-10, +1.1e-09]"),
        ((1e-17, 0.9e-17, 1.1e-17), "+1e-17 [+9e-18, +1.1e-17]"),
        ((-0.2, -0.4, 1e-14), "-0.200 [-0.400, 0.000]"),
        ((150.0, 149.0, 151.0), "+150 [+149, +151]"),
        # An interval around 0, and what sums of numbers near 1 leave of it, need no more.
        ((0.002, -0.0004, 0.004), "+0.002 [-0.001, +0.004]"),
        ((1e-17, -1e-17, 1e-16), "0.000 [0.000, 0.000]"),
    ],
)
def test_interval_that_excludes_zero_never_displays_it(ends, words):
    assert format_interval(Estimate(8, *ends), "+") == words


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ((100.0, 99.9, 100.0), "+100.000 [+99.900, +100.000]"),
        ((80.0, 20.0, 140.0), "+80 [+20, +140]"),
        ((75.0, 0.2, 149.8), "+75.000 [+0.200, +149.800]"),
        ((60.0, -20.0, 140.0), "+60 [-20, +140]"),
        ((150.4, 149.6, 151.2), "+150 [+149, +152]"),
    ],
)
def test_the_numbers_of_an_interval_have_equally_many_decimals(ends, words):
    assert format_interval(Estimate(8, *ends), "+") == words


@pytest.mark.parametrize(
    ("ends", "margin", "words"),
    [
        ((0.0, -0.00059, 0.0005), 0.0006, "0.0000 [-0.0006, +0.0005]"),
        ((0.0, -0.00166, 0.001), 0.0017, "0.0000 [-0.0017, +0.0010]"),
        ((0.002, -0.0104, 0.009), 0.01, "+0.002 [-0.011, +0.009]"),
        ((0.002, -0.0092, 0.009), 0.0095, "+0.0020 [-0.0092, +0.0090]"),
        ((120.0, 100.0, 130.55), 130.57, "+120.00 [+100.00, +130.55]"),
        ((0.0, -0.4, 0.5), 0.01, "0.000 [-0.400, +0.500]"),
    ],
)
def test_no_end_of_an_interval_is_shown_on_the_other_side_of_the_margin(ends, margin, words):
    assert format_interval(Estimate(8, *ends), "+", margin) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.25, "0.250"),
        (0.0004, "0.0004"),
        (-0.00042, "-0.00042"),
        (1e-14, "1e-14"),
        (1e-15, "0.000"),
        (250.4, "250"),
    ],
)
def test_a_small_number_is_not_shown_as_none(value, words):
    assert format_number(value) == words


@pytest.mark.parametrize(
    ("p", "level", "words"),
    [
        (0.0123, 0.05, "0.012"),
        (0.0499, 0.05, "0.05"),
        (0.0504, 0.05, "0.0504"),
        (0.05, 0.05, "0.05"),
        (0.00252, 0.0025, "0.00252"),
        (0.0555, 0.0557, "0.0555"),
        (0.0500000001, 0.05, "just above 0.05"),
        (1.0, 0.05, "1"),
    ],
)
def test_a_p_is_shown_on_its_side_of_the_level(p, level, words):
    assert format_p(p, level) == words


def test_settings_are_shown_as_a_spec_has_them():
    rows = outcome_table(study(2, 3, 0).report()).rows
    assert all(row[-1].endswith("model.gate=true") for row in rows)


def test_the_best_of_a_search_stands_in_every_table_where_nothing_is_confirmed():
    report = study(2, 0, 4).report()
    assert [row[-1] for row in outcome_table(report).rows] == [row[-1] for row in search_table(report).rows]
    assert all("model.layers=" in row[-1] for row in outcome_table(report).rows)
