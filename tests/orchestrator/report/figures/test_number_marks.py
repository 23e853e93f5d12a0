"""Numbers of arms are read wherever the arms lie."""

import random
from collections import Counter
from itertools import combinations

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from orchestrator.report.figures.number_marks import format_ranges, paint_numbers


def painted(places):
    """Axes as large as those of the page, and boxes of their texts in pixels."""
    figure = Figure(figsize=(4.4, 2.3))
    canvas = FigureCanvasAgg(figure)
    figure.subplots_adjust(left=0.14, right=0.96, bottom=0.2, top=0.84)
    axes = figure.add_subplot()
    paint_numbers(axes, places)
    canvas.draw()
    return axes, {each.get_text(): each.get_window_extent() for each in axes.texts}


def numbers_of(texts):
    """Of all texts together."""
    found = Counter()
    for text in texts:
        for part in text.split(", "):
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    return found


@pytest.mark.parametrize(
    ("numbers", "words"),
    [((3,), "3"), ((2, 1), "1-2"), ((1, 3, 4, 5, 9), "1, 3-5, 9"), ((7, 5, 3), "3, 5, 7")],
)
def test_numbers_that_follow_each_other_are_a_range(numbers, words):
    assert format_ranges(numbers) == words


def test_arms_that_lie_apart_have_their_numbers_in_them():
    places = {1: (1.0, 0.5), 2: (2.0, 0.6), 3: (3.0, 0.7)}
    axes, _ = painted(places)
    assert {each.get_text(): each.get_position() for each in axes.texts} == {
        str(number): place for number, place in places.items()
    }


def test_arms_at_one_place_share_a_text_above_it():
    axes, boxes = painted({1: (4.0, 0.4), 2: (4.0, 0.4), 4: (4.0, 0.4), 5: (3.9, 0.1)})
    assert set(boxes) == {"1-2, 4", "5"}
    place = axes.transData.transform((4.0, 0.4))
    assert boxes["1-2, 4"].y0 > place[1], "the mark is free"
    assert abs((boxes["1-2, 4"].x0 + boxes["1-2, 4"].x1) / 2 - place[0]) < 30


@pytest.mark.parametrize("seed", range(8))
def test_no_text_lies_on_another_and_none_is_left_out(seed):
    stream = random.Random(seed)
    spread = stream.choice([0.0, 0.01, 0.1, 1.0])
    places = {
        number: (1e6 * (1 + spread * stream.random()), stream.choice([0.3, 0.31, 0.9]))
        for number in range(1, 17)
    }
    axes, boxes = painted(places)
    assert numbers_of(boxes) == Counter([*places])
    assert len(boxes) == len(axes.texts)
    assert not [(a, b) for a, b in combinations(boxes, 2) if boxes[a].overlaps(boxes[b])]
    frame = axes.figure.bbox
    assert all(box.x0 >= frame.x0 and box.x1 <= frame.x1 and box.y1 <= frame.y1 for box in boxes.values())
