"""Read flip-flop strings as text, token by token, with a memory of one bit."""

SMALL = {
    "name": "flipflop",
    "length": 64,
    "long_length": 100,
    "train_examples": 300,
    "valid_examples": 20,
    "test_examples": 50,
}
RESEEDED = SMALL | {"data_seed": 1}


def solve(text: str) -> list[int]:
    """Return the bit to predict at each token, -1 at tokens without prediction."""
    words = text.split()
    assert words[0] == "<start>", f"a string must have a start: {text}"
    assert (words[1], words[-1]) == ("w", "r"), f"a string must begin with a write and end in a read: {text}"
    answers, memory = [-1], ""
    for instruction, bit in zip(words[1::2], [*words[2::2], None], strict=True):
        if instruction == "w":
            memory = str(bit)
        assert instruction in ("w", "i", "r"), instruction
        assert instruction != "r" or bit in (None, memory), f"a read must give what was written: {text}"
        answers.append(int(memory) if instruction == "r" else -1)
        if bit is not None:
            answers.append(-1)
    return answers
