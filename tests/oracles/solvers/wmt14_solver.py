"""Sentences looked up in the files again, and their measures written from the definitions.

The files are written when this module is loaded: made-up words, each in both languages, cut into pieces.
"""

import atexit
import math
import random
import shutil
import tempfile
from collections import Counter
from pathlib import Path

FOLDER = Path(tempfile.mkdtemp(prefix="haltsweep wmt14 "))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
WORDS = [
    ("the", "die"),
    ("ho@@ use", "Ha@@ us"),
    ("win@@ d@@ ow", "Fen@@ st@@ er"),
    ("is", "ist"),
    ("red", "rot"),
]
RARE = "Zy@@ pern"
SIZES = {"train": 50, "valid": 8, "test": 9}
LONGEST = 9


def written(folder: Path, seed: int) -> str:
    """The path of `folder` after its files have been written."""
    folder.mkdir(parents=True)
    dice = random.Random(seed)
    sentences: dict[str, tuple[str, str]] = {}
    while len(sentences) < sum(SIZES.values()):
        chosen = [dice.choice(WORDS) for _ in range(dice.randint(1, 6))]
        english, german = (" ".join(words) for words in zip(*chosen, strict=True))
        if len(english.split()) <= LONGEST:
            sentences[english] = english, german
    pairs = list(sentences.values())
    for part, size in SIZES.items():
        chosen, pairs = pairs[:size], pairs[size:]
        if part == "train":  # too long, and empty
            chosen[3:3] = [("red " * (LONGEST + 1), "rot"), ("the", ""), ("is " * LONGEST, "ist " * LONGEST)]
        else:
            chosen[0] = chosen[0][0] + " red red red red", chosen[0][1] + " " + RARE
        for side, texts in zip(("en", "de"), zip(*chosen, strict=True), strict=True):
            (folder / f"{part}.{side}").write_text("".join(text + "\n" for text in texts))
    pieces = sorted({piece for both in WORDS for word in both for piece in word.split()})
    (folder / "dict.txt").write_text("".join(f"{piece} {99 - place}\n" for place, piece in enumerate(pieces)))
    return str(folder)


SMALL = {"name": "wmt14", "folder": written(FOLDER / "one", 0), "pieces_max": LONGEST}
RESEEDED = SMALL | {"folder": written(FOLDER / "other", 1)}


def lines(name: str) -> list[str]:
    return (FOLDER / "one" / name).read_text().splitlines()


def solve(text: str) -> list[int]:
    """The translation, each piece as its number: 0 pads, 1 ends it, 2 is unknown."""
    known = [line.split()[0] for line in lines("dict.txt")]
    asked = text.removesuffix(" </s>")
    assert asked != text
    pairs = [pair for part in SIZES for pair in zip(lines(f"{part}.en"), lines(f"{part}.de"), strict=True)]
    found = [german for english, german in pairs if english.split() == asked.split() and german.strip()]
    return [3 + known.index(piece) if piece in known else 2 for piece in found[0].split()]


def bleu(written: list[list[str]], asked: list[list[str]]) -> float:
    """Papineni et al. 2002, sec. 2.3: up to 4 words, one reference, not smoothed, from 0 to 100."""
    precisions = []
    for n in range(1, 5):
        hits = total = 0
        for one, other in zip(written, asked, strict=True):
            mine, theirs = (
                Counter(tuple(words[start : start + n]) for start in range(len(words) - n + 1))
                for words in (one, other)
            )
            hits += sum(min(count, theirs[gram]) for gram, count in mine.items())
            total += sum(mine.values())
        precisions.append(hits / total if total else 0.0)
    if not all(precisions):
        return 0.0
    lengths = sum(map(len, written)), sum(map(len, asked))
    brevity = min(1.0, math.exp(1 - lengths[1] / lengths[0]))
    return 100 * brevity * math.exp(sum(map(math.log, precisions)) / 4)
