"""Any text becomes one that can be encoded and that PostgreSQL takes, and is otherwise left alone."""

import json

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.storable import storable, storable_value

ANY_TEXT = st.text(st.characters())


@given(ANY_TEXT)
def test_any_text_can_be_stored(text: str) -> None:
    kept = storable(text)
    assert kept.encode().decode() == kept
    assert "\0" not in kept
    assert storable(kept) == kept


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0")))
def test_what_can_be_stored_is_left_alone(text: str) -> None:
    assert storable(text) == text


def test_escapes_can_be_read() -> None:
    assert storable("a\udc80b\0") == r"a\udc80b\x00"


@given(
    st.recursive(
        ANY_TEXT | st.integers() | st.none(), lambda each: st.lists(each) | st.dictionaries(ANY_TEXT, each)
    )
)
def test_so_can_whatever_holds_texts(value) -> None:
    text = json.dumps(storable_value(value), ensure_ascii=False)
    assert text.encode().decode() == text
