"""Flip-flop strings follow their law, and the input of a model never contains the answer."""

import numpy as np
import pytest

from trainables.data.split import Split, content_hash
from trainables.tasks import flipflop as task


def build(name: str, **settings: object) -> Split:
    table = task.build(task.Config(**settings), name)
    return Split(table, task.PAD, content_hash(table))


def test_splits_equal_the_published_ones() -> None:
    """There are seven laws: the training law again, and three shares of `i` at two lengths."""
    infos = {info.name: info for info in task.splits(task.Config())}
    tests = [f"length-{length}-ignore-{ignore}" for length in (512, 1024) for ignore in (0.1, 0.8, 0.98)]
    assert list(infos) == ["train", "valid", "normal", *tests]
    assert infos["train"].examples == 160_000
    assert infos["valid"].examples == 7 * 1000
    assert {infos[name].examples for name in ("normal", *tests)} == {10_000}
    assert (infos["train"].length_min, infos["train"].length_max) == (512, 512)


@pytest.mark.parametrize(("length", "ignore"), [(512, 0.1), (512, 0.98), (1024, 0.8)])
def test_instructions_follow_the_law(length: int, ignore: float) -> None:
    """Shares of some 500,000 instructions are within six standard errors; fails by chance with 10^-8."""
    split = build(f"length-{length}-ignore-{ignore}", test_examples=2000)
    tokens = split.batch(np.arange(len(split))).tokens.numpy()
    assert tokens.shape == (2000, length)
    instructions = tokens[:, 1::2]
    assert (tokens[:, 0] == task.START).all()
    assert (instructions[:, 0] == task.WRITE).all()
    assert (instructions[:, -1] == task.READ).all()
    free = instructions[:, 1:-1]
    expected = {task.WRITE: (1 - ignore) / 2, task.IGNORE: ignore, task.READ: (1 - ignore) / 2}
    for instruction, share in expected.items():
        error = np.sqrt(share * (1 - share) / free.size)
        assert (free == instruction).mean() == pytest.approx(share, abs=6 * error)
    bits = tokens[:, 2::2][instructions[:, :-1] != task.READ] - task.ZERO
    assert set(bits.tolist()) == {0, 1}
    assert bits.mean() == pytest.approx(0.5, abs=3 / np.sqrt(bits.size))


def test_validation_split_mixes_all_seven_laws() -> None:
    """Therefore strings of 512 tokens with a share of 0.8 count twice."""
    split = build("valid", valid_examples=10, train_examples=10)
    assert split.lengths.tolist() == [512] * 40 + [1024] * 30
    shares = [
        (split.batch(np.arange(start, start + 10)).tokens == task.IGNORE).double().mean().item() * 2
        for start in range(0, 70, 10)
    ]
    assert shares == pytest.approx([0.8, 0.1, 0.8, 0.98, 0.1, 0.8, 0.98], abs=0.06)


def test_no_string_is_in_two_splits() -> None:
    """Strings of 64 tokens, nearly all `i`, are so few that independent draws would repeat strings."""
    config = task.Config(length=64, long_length=66, ignore=0.985, ignore_many=0.99, ignore_few=0.0,
                         train_examples=60_000, test_examples=60_000, valid_examples=1)  # fmt: skip
    streams = [task.numpy_stream(0, "flipflop", name, 0, 0) for name in ("train", "normal")]
    part = task._parts(config)["train"][0]
    distinct_draws = [set(task._row_hashes(task._draw(stream, part, 30_000))) for stream in streams]
    assert min(map(len, distinct_draws)) < 30_000, "the test needs a law that repeats strings"
    train, normal = (task._strings(config, name)[0] for name in ("train", "normal"))
    marks = [set(map(bytes, strings)) for strings in (train, normal)]
    assert [len(marks_) for marks_ in marks] == [60_000, 60_000]
    assert not marks[0] & marks[1]
