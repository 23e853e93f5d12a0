"""A spec holds no password and only what can be stored; such a fault comes alone and tells no secret."""

import pytest

from orchestrator.errors import SpecError
from orchestrator.spec.load import read_spec
from tests.support.commands import TINY

MARKER = "Kx7Marker9Zq"
URL = f"https://ann:{MARKER}@host/data"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Does the gate matter?", f"Is it at {URL}?"),
        ("{name: listops,", f'{{name: listops, "{URL}": 1,'),
        ("plain feed-forward block", f"'as in {URL}'"),
        ("short:\n", f"short:\n    question: '{URL}'\n"),
        ("sampler: random", f"sampler: {{name: random, storage: '{URL}'}}"),
    ],
)
def test_a_password_is_refused_wherever_it_stands(tmp_path, old, new) -> None:
    file = tmp_path / "tiny.yaml"
    assert old in TINY
    # A second fault, which would quote what was given.
    file.write_text(TINY.replace(old, new).replace("seed: 0", "seed: zero"), encoding="utf-8")
    with pytest.raises(SpecError, match=r"must hold no password or token.*https://ann:\*\*\*@host") as caught:
        read_spec(file)
    assert MARKER not in str(caught.value)
    assert "zero" not in str(caught.value)


@pytest.mark.parametrize("override", [f"question={URL}", f"nowhere.at.all={URL}"])
def test_a_password_in_an_override_is_not_told(tmp_path, override) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY, encoding="utf-8")
    with pytest.raises(SpecError, match=r"https://ann:\*\*\*@host") as caught:
        read_spec(file, [override])
    assert MARKER not in str(caught.value)


@pytest.mark.parametrize("text", [r"\ud800", r"\0"])
def test_what_cannot_be_stored_is_refused(tmp_path, text) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY.replace("Does the gate matter?", f'"Does {text} matter?"'), encoding="utf-8")
    with pytest.raises(
        SpecError, match=r"tiny.yaml:2: question: must be text that can be stored, got 'Does "
    ):
        read_spec(file)
