"""The page shows halting maps of the examples that confirm trials stored."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.report.writers.page import html_page
from orchestrator.trials import OutcomeKind
from tests.orchestrator.report.studies import SPLITS, Study, make_study
from tests.orchestrator.report.writers.test_page import HOSTILE_HTML, parse_html, parse_page

ExamplesOf = Callable[[int, int], list[dict[str, Any]]]
"""Function from arm index and seed index to the examples that the trial stores."""


def make_example(number: int = 7, **fields: Any) -> dict[str, Any]:
    running = [[100, 40, -1], [100, 80, 30], [100, -1, -1]]
    part = {"words": ["START", "[MAX", "END"], "length": 3, "running": running}
    default_fields = {
        "split": SPLITS[0],
        "number": number,
        "target": "4",
        "answer": "2",
        "hits": 0,
        "counts": 1,
        "depth": 2.0,
        "meaning": "survival",
        "parts": [part],
    }
    return default_fields | fields


def with_examples(base_study: Study, examples_of: ExamplesOf, num_examples: int = 8) -> Study:
    """Return the study whose confirm trials store examples."""
    assert base_study.plan.confirm is not None
    arms = [arm.name for arm in base_study.plan.arms]
    measurements = dict(base_study.measured)
    for record in base_study.records:
        if record.phase == "confirm":
            *earlier, last = measurements[record.trial_id]
            examples = tuple(examples_of(arms.index(record.arm), record.seed - 101))
            measurements[record.trial_id] = [*earlier, replace(last, examples=examples)]
    plan = replace(base_study.plan, confirm=replace(base_study.plan.confirm, halting_examples=num_examples))
    return replace(base_study, plan=plan, measured=measurements)


def examples_by_arm(examples: Mapping[int, list[dict[str, Any]]]) -> ExamplesOf:
    return lambda arm, _: examples.get(arm, [])


def test_page_lists_the_computed_layers_of_each_word() -> None:
    tested_study = with_examples(make_study(2, seeds=2, trials=0), examples_by_arm({0: [make_example()]}))
    page = parse_page(tested_study)
    label = page.labels("Halting of arm-0")
    assert re.search(r"arm-0 .*example 7 .*near-iid, depth 2: .*START 2; \[MAX 3; END 1$", label)
    assert re.search("example 7: 2, .* 4", page.text)


@pytest.mark.usefixtures("undrawn")
def test_page_shows_the_first_finished_seed() -> None:
    study_with_crash = make_study(
        1,
        seeds=3,
        trials=0,
        outcome_of=lambda _, seed: OutcomeKind.CRASHED if seed == 0 else OutcomeKind.FINISHED,
    )
    page = parse_page(with_examples(study_with_crash, lambda _, seed: [make_example(seed)]))
    assert "arm-0, seed 102" in page.text
    assert "seed 103" not in page.labels("Halting of")
    assert "example 1 " in page.labels("Halting of arm-0")


def test_words_are_escaped_and_omissions_are_counted() -> None:
    part = {"words": [HOSTILE_HTML, "$x$"], "length": 300, "running": [[100], [50]]}
    tested_study = with_examples(
        make_study(1, seeds=2, trials=0),
        examples_by_arm({0: [make_example(parts=[part], target=HOSTILE_HTML, answer=HOSTILE_HTML)]}),
    )
    html = html_page(tested_study.report(), tested_study.details())
    assert "script" not in parse_html(html).tags
    assert "\x1b" not in html
    assert " 2 of 300 words" in parse_html(html).text
