"""Readable texts of values, domains and conditions."""

from typing import Any

import pytest

from orchestrator.plan.display.format import (
    change_words,
    condition_words,
    decimals,
    domain_words,
    setting_words,
    value_words,
)
from search_spaces.dimensions import Choice, Dimension, Domain, Fixed, Float, Int, When


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (3, "3"),
        (1e-8, "1e-08"),
        (0.999, "0.999"),
        ("token", "token"),
        ("8", "'8'"),
        ("1e-3", "'1e-3'"),
        ("true", "'true'"),
        ("nan", "nan"),
        ("", "''"),
        (((200, 300), (1, 2)), "[[200, 300], [1, 2]]"),
        ({"unit": "token", "gate": False}, "unit token, gate false"),
    ],
)
def test_value_words(value: Any, text: str) -> None:
    assert value_words(value) == text


@pytest.mark.parametrize(
    ("value", "sign", "text"),
    [
        (-0.0004, "", "0.000"),
        (-0.0004, "+", "0.000"),
        (0.0004, "+", "0.000"),
        (-0.0, "", "0.000"),
        (-0.0006, "", "-0.001"),
        (0.25, "+", "+0.250"),
        (-100.4, "+", "-100.400"),
        (float("-inf"), "", "-inf"),
    ],
)
def test_number_rounded_to_zero_has_no_sign(value: float, sign: str, text: str) -> None:
    assert decimals(value, 3, sign) == text


@pytest.mark.parametrize(
    ("domain", "text"),
    [
        (Choice((1, "a", None)), "one of 1, a, null"),
        (Fixed(value=False), "always false"),
        (Float(1e-4, 2e-3, log=True), "0.0001 to 0.002, log"),
        (Float(0.0, 1.0, step=0.25), "0 to 1, step 0.25"),
        (Float(0.0, 8.0, step=1.0), "0 to 8, step 1"),
        (Int(1, 8), "1 to 8, whole numbers"),
        (Int(2, 8, step=2), "2 to 8, whole numbers, step 2"),
        (Int(8, 17, step=4), "8 to 16, whole numbers, step 4"),
        (Float(0.0, 1.0, step=0.3), "0 to 0.9, step 0.3"),
    ],
)
def test_domain_words(domain: Domain, text: str) -> None:
    assert domain_words(domain) == text


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (0.1, 0.2, ("0.1", "0.2")),
        (0.12345678, 0.12345679, ("0.12345678", "0.12345679")),
        (123456789.0, 123456780.0, ("123456789.0", "123456780.0")),
        ([1.0000001], [1.0], ("[1.0000001]", "[1.0]")),
        (None, 3, ("null", "3")),
    ],
)
def test_change_words_always_differ(before: Any, after: Any, words: tuple[str, str]) -> None:
    assert change_words(before, after) == words


def test_settings_are_written_as_in_a_spec() -> None:
    settings = {"lr": 0.123456789, "gate": True, "halt": None, "name": "null", "layers": 2}
    assert setting_words(settings) == "lr=0.123456789, gate=true, halt=null, name='null', layers=2"
    assert setting_words({"lr": 0.123456789, "gate": False}, 4, ",") == "lr=0.1235,gate=false"


def test_condition_words() -> None:
    when = (When("model.unit", ("token", "sequence")), When("model.gate", (True,)))
    assert condition_words(Dimension("model.x", Float(0.0, 1.0))) == ""
    assert (
        condition_words(Dimension("model.x", Float(0.0, 1.0), when))
        == "model.unit is token or sequence and model.gate is true"
    )


def test_numbers_of_many_digits_are_rounded_to_their_magnitude() -> None:
    assert decimals(-7.5e75, 0) == "-7.5e+75"
    assert decimals(1.23456e12, 3, "+") == "+1.235e+12"
    assert decimals(123456789.0, 0) == "123456789"
