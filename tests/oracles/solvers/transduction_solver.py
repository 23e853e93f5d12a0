"""Copy, reverse or sort strings by inserting one symbol at a time."""

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
    """Return the answer; symbol s0 has the number 2."""
    answer: list[int] = []
    for number in (int(word.removeprefix("s")) for word in text.split()):
        place = {"copy": len(answer), "reverse": 0, "sort": sum(2 + number >= symbol for symbol in answer)}
        answer.insert(place[function], 2 + number)
    return answer
