"""Hostile text is shown unchanged, on a terminal and by a Markdown reader."""

import re
import unicodedata
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from search_spaces.wording import escape_to_line, escape_unprintable, markdown_text, nearest

SIGNS = "\\`*_{}[]()<>#+-.!|~=&$:/@'\" \n1a\x1b\u202e"
HOSTILE = st.lists(
    st.sampled_from(
        [*SIGNS, "<b>", "</p>", "&lt;", "![x](y)", "[x]: /y", "http://a.b", "<!--", "---", "***", "~~~"]
    )
).map("".join)


class VisibleText(HTMLParser):
    """Collects the text that a browser shows."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.shown = ""

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.add(tag)

    def handle_data(self, data) -> None:
        self.shown += data

    def handle_comment(self, data) -> None:
        self.tags.add("comment")


def render_markdown(markdown: str) -> VisibleText:
    text = VisibleText()
    text.feed(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(markdown))
    text.close()
    return text


def words(text: str) -> str:
    return re.sub(r"\s+", "", text)


@given(HOSTILE | st.text())
@example("a\n===")
@example("1. a\n2) b")
@example("- - -")
@example("__0__")
def test_markdown_shows_the_written_text(text: str) -> None:
    rendered = render_markdown(markdown_text(text))
    assert rendered.tags <= {"p", "br", "pre", "code"}
    assert words(rendered.shown) == words(escape_unprintable(text))


@given(st.text(st.characters()))
def test_visible_text_has_no_control_characters(text: str) -> None:
    visible_text = escape_unprintable(text)
    assert {unicodedata.category(character) for character in visible_text if character != "\n"}.isdisjoint(
        {"Cc", "Cf", "Cs"}
    )
    assert visible_text.count("\n") == text.count("\n")
    assert "\n" not in escape_to_line(text)
    visible_text.encode()


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("train.learning_rate", ("train.length_penalty", "train.lr"), "train.lr"),
        ("model.learning_rate", ("train.lr",), None),
        ("rate", ("rates", "r"), "rates"),
    ],
)
def test_name_is_suggested_by_its_initials(name, known, expected):
    assert nearest(name, known) == expected
