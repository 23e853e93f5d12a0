"""report.json contains every number of the page without rounding."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from orchestrator.report.caveats.notes import notes
from orchestrator.report.writers.json_file import as_json
from orchestrator.report.writers.page import html_page
from orchestrator.report.writers.page_sections import page_sections
from orchestrator.spec.section import Objective
from orchestrator.trials import OutcomeKind
from tests.orchestrator.report.halting.test_halting_maps import examples_by_arm, make_example, with_examples
from tests.orchestrator.report.studies import make_study

NUMBER_TEXT = re.compile(r"(?<![\w.-])[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.]*\d)")
CONSTANT_TEXT = re.compile(r"95% interval|middle 80%|Table \d+")
SCALES = (1.0, 100.0, 1 / 3600, 1 / 60, 1e-3, 1e-6, 1e-9)
"""Shares as percentages, seconds as hours and minutes, thousands, millions and billions."""
TWO_OBJECTIVES = (Objective(metric="valid/accuracy", goal="max"), Objective(metric="valid/depth", goal="min"))


class PageTextParser(HTMLParser):
    """Collects readable texts and figure labels of a page, without style and axes."""

    def __init__(self) -> None:
        super().__init__()
        self.inside: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag, attrs):
        if tag in {"svg", "style"}:
            self.inside.append(tag)
        self.texts += [value for name, value in attrs if name == "aria-label" and value]

    def handle_endtag(self, tag):
        if self.inside and tag == self.inside[-1]:
            self.inside.pop()

    def handle_data(self, data):
        if not self.inside and data.strip():
            self.texts.append(data)


def collect_values(value, texts, numbers):
    """Collect all texts and numbers of a JSON value."""
    if isinstance(value, dict):
        for key, item in value.items():
            collect_values(key, texts, numbers)
            collect_values(item, texts, numbers)
    elif isinstance(value, list):
        numbers.append(float(len(value)))
        for item in value:
            collect_values(item, texts, numbers)
    elif isinstance(value, str):
        texts.append(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        numbers.append(float(value))


def is_in_json(token, texts, sizes):
    """Return whether a displayed number is in a text or rounds one of `sizes`."""
    if token in texts:
        return True
    value = float(token.replace(",", ""))
    mantissa, _, exponent = token.replace(",", "").partition("e")
    resolution = 10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2]))
    return bool((np.abs(sizes - abs(value)) <= 1.0001 * resolution).any())


@pytest.mark.parametrize(
    "page_study",
    [
        make_study(
            3,
            4,
            12,
            outcome_of=lambda arm, seed: OutcomeKind.DIVERGED if seed == arm else OutcomeKind.FINISHED,
        ),
        make_study(2, 2, 14, thresholds=(), objectives=TWO_OBJECTIVES),
        with_examples(
            make_study(2, 3, 0), examples_by_arm({0: [make_example(), make_example(9, hits=3, counts=5)]})
        ),
    ],
)
@pytest.mark.usefixtures("undrawn")
def test_json_contains_every_number_of_the_page(page_study):
    report, details = page_study.report(), page_study.details()
    texts, numbers = [], []
    collect_values(json.loads(as_json(report, details)), texts, numbers)
    page = PageTextParser()
    page.feed(html_page(report, details))
    explanations = set(notes(report))
    for section in page_sections(report, details):
        explanations |= {*section.texts, *(text for part in section.parts for text in part.texts)}
    tokens = [
        (token, text)
        for text in page.texts
        if not any(text.strip() and text.strip() in explanation for explanation in explanations)
        for token in NUMBER_TEXT.findall(CONSTANT_TEXT.sub("", text))
    ]
    assert len(tokens) > 100
    sizes = np.unique(np.abs(np.outer(numbers, SCALES)))
    number_texts = set(NUMBER_TEXT.findall("\n".join(texts)))
    missing_numbers = [
        (token, text[:90]) for token, text in tokens if not is_in_json(token, number_texts, sizes)
    ]
    assert not missing_numbers
