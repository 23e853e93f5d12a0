"""report.json holds what the page shows: every number on the page is one of its own, rounded."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from orchestrator.report.caveats.notes import notes
from orchestrator.report.results.details import Details
from orchestrator.report.writers.json_file import as_json
from orchestrator.report.writers.page import html_page
from orchestrator.report.writers.page_sections import sections
from orchestrator.spec.section import Objective
from orchestrator.trials import OutcomeKind
from tests.orchestrator.report.halting.test_halting_maps import example, keeping, some
from tests.orchestrator.report.studies import study

NUMBER = re.compile(r"(?<![\w.-])[+-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?(?![\w.]*\d)")
CONSTANT = re.compile(r"95% interval|middle 80%|Table \d+")
SCALES = (1.0, 100.0, 1 / 3600, 1 / 60, 1e-3, 1e-6, 1e-9)
"""Shares as percentages, seconds as hours and minutes, thousands, millions and billions."""
TWO = (Objective(metric="valid/accuracy", goal="max"), Objective(metric="valid/depth", goal="min"))


class Shown(HTMLParser):
    """What can be read, and what figures say of themselves; style and axes aside."""

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


def held(value, texts, numbers):
    """All texts and numbers of JSON values."""
    if isinstance(value, dict):
        for key, inner in value.items():
            held(key, texts, numbers)
            held(inner, texts, numbers)
    elif isinstance(value, list):
        numbers.append(float(len(value)))
        for inner in value:
            held(inner, texts, numbers)
    elif isinstance(value, str):
        texts.append(value)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        numbers.append(float(value))


def there(token, texts, sizes):
    """Whether a number as shown is in a text, or is one of these without sign, rounded up or down."""
    if token in texts:
        return True
    value = float(token.replace(",", ""))
    mantissa, _, power = token.replace(",", "").partition("e")
    step = 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))
    return bool((np.abs(sizes - abs(value)) <= 1.0001 * step).any())


@pytest.mark.parametrize(
    "made",
    [
        study(3, 4, 12, fate=lambda arm, seed: OutcomeKind.DIVERGED if seed == arm else OutcomeKind.FINISHED),
        study(2, 2, 14, thresholds=(), objectives=TWO),
        keeping(study(2, 3, 0), some({0: [example(), example(9, hits=3, counts=5)]})),
    ],
)
@pytest.mark.usefixtures("undrawn")
def test_json_contains_every_number_of_the_page(made):
    report, details = made.report(), made.details()
    texts, numbers = [], []
    held(json.loads(as_json(report, details)), texts, numbers)
    seen = Shown()
    seen.feed(html_page(report, details))
    explained = set(notes(report))
    for section in sections(report, details):
        explained |= {*section.texts, *(text for part in section.parts for text in part.texts)}
    tokens = [
        (token, text)
        for text in seen.texts
        if not any(text.strip() and text.strip() in each for each in explained)
        for token in NUMBER.findall(CONSTANT.sub("", text))
    ]
    assert len(tokens) > 100
    sizes = np.unique(np.abs(np.outer(numbers, SCALES)))
    words = set(NUMBER.findall("\n".join(texts)))
    lacking = [(token, text[:90]) for token, text in tokens if not there(token, words, sizes)]
    assert not lacking


def test_json_contains_data_of_figures():
    made = study(2, 3, 14)
    report, details = made.report(), made.details()
    values = json.loads(as_json(report, details))["page"]
    assert set(values) == {*Details.__dataclass_fields__, "sentences"}
    for found, course in zip(values["searches"], details.searches, strict=True):
        assert [tuple(each) for each in found["best_so_far"]] == list(course.best_so_far)
        assert [row["mean"] for row in found["expected"]] == [each.mean for each in course.expected]
        assert found["importance"]["shares"] == dict(course.importance.shares)
        assert found["edges"] == list(course.edges)
        assert [trial["number"] for trial in found["trials"]] == [trial.number for trial in course.trials]
        assert sum(found["outcomes"].values()) == len(course.trials)
    for name in ("curves", "costs", "depths", "arms"):
        assert [value["arm"] for value in values[name]] == [each.arm for each in getattr(details, name)]
    assert values["curves"][0]["mean"] == list(details.curves[0].mean)
    two = study(2, 0, 14, thresholds=(), objectives=TWO)
    (search, _) = json.loads(as_json(two.report(), two.details()))["page"]["searches"]
    course = two.details().searches[0]
    assert [row["values"] for row in search["front"]] == [list(each.values) for each in course.front]
    assert [tuple(hypervolume) for hypervolume in search["hypervolumes"]] == list(course.hypervolumes)


def test_json_without_details_has_no_page():
    report = study(2, 2, 0).report()
    assert "page" not in json.loads(as_json(report))
