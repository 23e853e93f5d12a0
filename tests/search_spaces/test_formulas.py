"""Conditions between fields: their syntax and meaning."""

from typing import Any

import pytest

from search_spaces.formulas import BadFormula, holds, parse_formula
from search_spaces.paths import lookup

SETTINGS = {
    "width": 64,
    "heads": 6,
    "layers": [{"size": 3}, {"size": 4}],
    "weight-decay": 0.1,
    "lambda": 2,
    "model": {"width": 10},
    "optimizer": "adam",
    "on": True,
    "none": None,
    "zero": 0,
}


def value(path: str) -> Any:
    return lookup(SETTINGS, path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("width % heads == 0", False),
        ("width * layers.1.size <= 256", True),
        ("width // heads == 10 and width - 4 == heads * 10", True),
        ("heads ** 2 + 1 > 36", True),
        ("-heads < 0 < +heads <= 6", True),
        ("width / heads > 10.6", True),
        ("`weight-decay` <= 1e-1", True),
        ("optimizer == 'adam' or width > 100", True),
        ("optimizer in ['sgd', \"adamw\"]", False),
        ("optimizer not in ('sgd', 'adamw')", True),
        ("not (optimizer == 'adam' and heads > 4)", False),
        ("min(width, heads, 3) == 3 and max(heads, 7) == 7 and abs(heads - 10) == 4", True),
        ("on == true and on != 1", True),
        ("none * 2 > 3", True),  # a comparison with null holds
        ("absent > 3", True),  # a comparison with a missing field holds
        ("width % zero == 0", False),
        ("width ** 5000 > 0", True),
        ("(0 - width) ** 0.5 > 0", False),
    ],
)
def test_formula_has_the_expected_value(text: str, expected: bool) -> None:
    assert holds(text, value) is expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "width + heads",
        "width = 3",
        "__import__('os').system('true') == 0",
        "open('x') == 0",
        "[each for each in width] == 0",
        "width == f'{heads}'",
        "min(width, key=heads) == 0",
        "(" * 400 + "width == 3" + ")" * 400,
        "width == " + "1" * 1000,
    ],
)
def test_invalid_formula_is_refused(text: str) -> None:
    with pytest.raises(BadFormula):
        parse_formula(text)


@pytest.mark.parametrize("text", ["optimizer < 3", "layers + 1 > 0"])
def test_incomparable_values_raise_an_error(text: str) -> None:
    with pytest.raises(TypeError):
        holds(text, value)
