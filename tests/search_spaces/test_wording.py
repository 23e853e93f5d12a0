"""Hostile text is shown as it stands: on a terminal, and through a real Markdown reader."""

import re
import unicodedata
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from search_spaces.wording import (
    counted,
    markdown_text,
    nearest,
    printable,
    visible,
)

SIGNS = "\\`*_{}[]()<>#+-.!|~=&$:/@'\" \n1a\x1b\u202e"
HOSTILE = st.lists(
    st.sampled_from(
        [*SIGNS, "<b>", "</p>", "&lt;", "![x](y)", "[x]: /y", "http://a.b", "<!--", "---", "***", "~~~"]
    )
).map("".join)


class Text(HTMLParser):
    """What a browser shows."""

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


def read(markdown: str) -> Text:
    seen = Text()
    seen.feed(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(markdown))
    seen.close()
    return seen


def words(text: str) -> str:
    return re.sub(r"\s+", "", text)


@given(HOSTILE | st.text())
@example("a\n===")
@example("1. a\n2) b")
@example("- - -")
@example("__0__")
def test_markdown_shows_what_was_written(text: str) -> None:
    seen = read(markdown_text(text))
    assert seen.tags <= {"p", "br", "pre", "code"}
    assert words(seen.shown) == words(visible(text))


@given(st.text(st.characters()))
def test_nothing_visible_steers_a_terminal_or_turns_text_around(text: str) -> None:
    shown = visible(text)
    assert {unicodedata.category(one) for one in shown if one != "\n"}.isdisjoint({"Cc", "Cf", "Cs"})
    assert shown.count("\n") == text.count("\n")
    assert "\n" not in printable(text)
    shown.encode()


@pytest.mark.parametrize(
    "text", ["Does the gate matter?", "F1 of 0.5, p = 0.02", "tokens_per_s", "a [b] (c)"]
)
def test_common_text_is_left_alone(text: str) -> None:
    assert markdown_text(text) == text == visible(text)


def test_numbers_that_nobody_counts_are_told_by_their_power_of_ten() -> None:
    assert [counted(number) for number in (1045, 2**40, 2**20_000)] == [
        "1,045",
        "1,099,511,627,776",
        "about 10^6020",
    ]


@pytest.mark.parametrize(
    ("name", "known", "found"),
    [
        ("train.learning_rate", ("train.length_penalty", "train.lr"), "train.lr"),
        ("LR", ("layers", "learning_rate"), "learning_rate"),
        ("model.learning_rate", ("train.lr",), None),
        ("rate", ("rates", "r"), "rates"),
        ("", ("lr",), None),
    ],
)
def test_a_name_is_found_by_its_initials_too(name, known, found):
    assert nearest(name, known) == found
