"""Halting maps on the page show what confirm trials kept, and nothing of it is anybody's mark-up."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.report.writers.page import html_page
from orchestrator.trials import OutcomeKind
from tests.orchestrator.report.studies import SPLITS, Study, study
from tests.orchestrator.report.writers.test_page import EVIL, read, shown

Kept = Callable[[int, int], list[dict[str, Any]]]
"""By the arm's place and the seed's, what its trial keeps."""


def example(number: int = 7, **more: Any) -> dict[str, Any]:
    running = [[100, 40, -1], [100, 80, 30], [100, -1, -1]]
    part = {"words": ["START", "[MAX", "END"], "length": 3, "running": running}
    known = {
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
    return known | more


def keeping(made: Study, kept: Kept, most: int = 8) -> Study:
    """The study with what its confirm trials keep."""
    assert made.plan.confirm is not None
    arms = [arm.name for arm in made.plan.arms]
    measured = dict(made.measured)
    for record in made.records:
        if record.phase == "confirm":
            *others, last = measured[record.trial_id]
            found = tuple(kept(arms.index(record.arm), record.seed - 101))
            measured[record.trial_id] = [*others, replace(last, examples=found)]
    plan = replace(made.plan, confirm=replace(made.plan.confirm, halting_examples=most))
    return replace(made, plan=plan, measured=measured)


def some(made: Mapping[int, list[dict[str, Any]]]) -> Kept:
    return lambda arm, _: made.get(arm, [])


def test_layers_kept_of_each_word_are_told_and_drawn() -> None:
    made = keeping(study(2, seeds=2, trials=0), some({0: [example()]}))
    seen = shown(made)
    message = (
        "Halting of arm-0 on example 7 of near-iid, depth 2: layers kept of each word: START 2; [MAX 3; END 1"
    )
    assert seen.labels("Halting of arm-0") == message
    assert "example 7: 2, right is 4" in seen.text
    assert "arm-0, seed 101" in seen.text
    assert "No map was kept of arm-1: no word halts by itself there" in seen.text


def test_a_right_answer_and_many_answers_are_told() -> None:
    right = example(1, hits=1, answer="4")
    many = example(2, target=None, answer=None, hits=3, counts=5)
    seen = shown(keeping(study(1, seeds=2, trials=0), some({0: [right, many]})))
    assert "example 1: 4, right" in seen.text
    assert "example 2: 3 of 5 answers right" in seen.text


def test_the_first_seed_that_finished_is_shown() -> None:
    failing = study(
        1,
        seeds=3,
        trials=0,
        fate=lambda _, seed: OutcomeKind.CRASHED if seed == 0 else OutcomeKind.FINISHED,
    )
    seen = shown(keeping(failing, lambda _, seed: [example(seed)]))
    assert "arm-0, seed 102" in seen.text
    assert "seed 103" not in seen.labels("Halting of")
    assert "example 1 of" in seen.labels("Halting of arm-0")


def test_words_are_escaped_and_omissions_are_counted() -> None:
    part = {"words": [EVIL, "$x$"], "length": 300, "running": [[100], [50]]}
    made = keeping(study(1, seeds=2, trials=0), some({0: [example(parts=[part], target=EVIL, answer=EVIL)]}))
    html = html_page(made.report(), made.details())
    assert "script" not in read(html).tags
    assert "\x1b" not in html
    assert "the first 2 of 300 words" in read(html).text


@pytest.mark.slow
def test_a_page_of_many_experts_stays_small() -> None:
    arms, experts, layers = 5, 24, 12
    mixtures = [
        {
            "name": name,
            "classes": [f"class {row}" for row in range(8)],
            "uses": [[(at * 7 + row) % 11 for at in range(experts)] for row in range(8)],
            "layers": [[row + 1, [(at * 5 + row) % 13 for at in range(experts)]] for row in range(layers)],
        }
        for name in ("attention", "feed-forward")
    ]
    kept = [{"kind": "experts", "examples": 256, "mixtures": mixtures}]
    made = keeping(study(arms, seeds=1, trials=0, thresholds=()), lambda *_: kept)
    html = html_page(made.report(), made.details())
    assert html.count('<figure id="experts-') == arms * 4
    assert len(html.encode()) < arms * 300_000


def page_of_one(kept: list[dict[str, Any]]) -> str:
    made = keeping(study(1, seeds=2, trials=0, thresholds=()), some({0: kept}))
    return html_page(made.report(), made.details())


def test_arms_whose_maps_mean_different_things_are_told_apart() -> None:
    composed = example(meaning="existence")
    seen = shown(keeping(study(3, seeds=2, trials=0), some({0: [example()], 1: [composed], 2: [example()]})))
    assert "in arm-0, arm-2, the probability that no layer before gave the word its final state" in seen.text
    assert "; in arm-1, the probability that the word has not been composed into another one." in seen.text


@pytest.mark.parametrize("field", ["split", "parts", "depth"])
def test_a_record_of_something_else_is_no_map(field: str) -> None:
    broken = example()
    del broken[field]
    made = keeping(study(1, seeds=2, trials=0), some({0: [broken]}))
    with pytest.raises(KeyError, match=field):
        made.details()
