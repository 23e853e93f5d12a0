"""Strings written again, backwards or sorted, by moving one symbol at a time."""

SMALL = {
    "name": "transduction",
    "function": "sort",
    "symbols": 4,
    "length_min": 2,
    "length_max": 6,
    "test_lengths": [7, 9],
    "train_examples": 120,
    "valid_examples": 30,
    "test_examples": 25,
}
RESEEDED = SMALL | {"data_seed": 1}
VARIANTS = {"copy": {"function": "copy"}, "reverse": {"function": "reverse"}}


def solve(text: str, function: str = "sort") -> list[int]:
    """The answer; symbol s0 is 2."""
    answer: list[int] = []
    for number in (int(word.removeprefix("s")) for word in text.split()):
        place = {"copy": len(answer), "reverse": 0, "sort": sum(2 + number >= each for each in answer)}
        answer.insert(place[function], 2 + number)
    return answer
