"""Readable texts of values, domains and amounts."""

from typing import Any

import pytest

from orchestrator.plan.display.format import (
    bytes_amount,
    change_words,
    domain_words,
    format_amount,
    format_decimals,
    format_duration,
    setting_words,
    value_words,
)
from search_spaces.dimensions import Choice, Domain, Fixed, Float, Int


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        ("8", "'8'"),
        (((200, 300), (1, 2)), "[[200, 300], [1, 2]]"),
        ({"unit": "token", "gate": False}, "unit token, gate false"),
    ],
)
def test_value_words(value: Any, text: str) -> None:
    assert value_words(value) == text


@pytest.mark.parametrize(
    ("value", "sign", "text"),
    [(-0.0004, "+", "0.000"), (-0.0006, "", "-0.001"), (0.25, "+", "+0.250"), (float("-inf"), "", "-inf")],
)
def test_number_rounded_to_zero_has_no_sign(value: float, sign: str, text: str) -> None:
    assert format_decimals(value, 3, sign) == text


@pytest.mark.parametrize(
    ("domain", "text"),
    [
        (Choice((1, "a", None)), "one of 1, a, null"),
        (Fixed(value=False), "always false"),
        (Float(1e-4, 2e-3, log=True), "0.0001 to 0.002, log"),
        (Int(8, 17, step=4), "8 to 16, whole numbers, step 4"),
    ],
)
def test_domain_words(domain: Domain, text: str) -> None:
    assert domain_words(domain) == text


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [(0.1, 0.2, ("0.1", "0.2")), (0.12345678, 0.12345679, ("0.12345678", "0.12345679"))],
)
def test_change_words_always_differ(before: Any, after: Any, words: tuple[str, str]) -> None:
    assert change_words(before, after) == words


def test_settings_are_written_as_in_a_spec() -> None:
    settings = {"lr": 0.123456789, "gate": True, "halt": None, "name": "null", "layers": 2}
    assert setting_words(settings) == "lr=0.123456789, gate=true, halt=null, name='null', layers=2"


def test_numbers_of_many_digits_are_rounded_to_their_magnitude() -> None:
    assert format_decimals(-7.5e75, 0) == "-7.5e+75"
    assert format_decimals(1.23456e12, 3, "+") == "+1.235e+12"
    assert format_decimals(123456789.0, 0) == "123456789"


def test_amounts_and_durations_are_rounded() -> None:
    texts = [
        format_amount(999.6),
        format_amount(4.5504e8),
        bytes_amount(2.57e9),
        format_duration(0.0032),
        format_duration(19_800),
    ]
    assert texts == ["1 k", "455 M", "2.39 GiB", "3.2 ms", "5.5 h"]
