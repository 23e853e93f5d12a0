"""Look sentences up in the files, and compute their measures from the definitions.

Loading this module writes the files: invented words, each in both languages, split into pieces.
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


def write_files(folder: Path, seed: int) -> str:
    """Write the files to `folder`, and return its path."""
    folder.mkdir(parents=True)
    stream = random.Random(seed)
    sentences: dict[str, tuple[str, str]] = {}
    while len(sentences) < sum(SIZES.values()):
        selected = [stream.choice(WORDS) for _ in range(stream.randint(1, 6))]
        english, german = (" ".join(words) for words in zip(*selected, strict=True))
        if len(english.split()) <= LONGEST:
            sentences[english] = english, german
    pairs = list(sentences.values())
    for part, size in SIZES.items():
        selected, pairs = pairs[:size], pairs[size:]
        if part == "train":  # too long, and empty
            selected[3:3] = [
                ("red " * (LONGEST + 1), "rot"),
                ("the", ""),
                ("is " * LONGEST, "ist " * LONGEST),
            ]
        else:
            selected[0] = selected[0][0] + " red red red red", selected[0][1] + " " + RARE
        for side, texts in zip(("en", "de"), zip(*selected, strict=True), strict=True):
            (folder / f"{part}.{side}").write_text("".join(text + "\n" for text in texts))
    pieces = sorted({piece for languages in WORDS for word in languages for piece in word.split()})
    (folder / "dict.txt").write_text("".join(f"{piece} {99 - place}\n" for place, piece in enumerate(pieces)))
    return str(folder)


SMALL = {"name": "wmt14", "folder": write_files(FOLDER / "one", 0), "pieces_max": LONGEST}
RESEEDED = SMALL | {"folder": write_files(FOLDER / "other", 1)}


def lines(name: str) -> list[str]:
    return (FOLDER / "one" / name).read_text().splitlines()


def solve(text: str) -> list[int]:
    """Return the translation as numbers of pieces: 0 pads, 1 ends it, 2 is an unknown piece."""
    vocabulary = [line.split()[0] for line in lines("dict.txt")]
    source = text.removesuffix(" </s>")
    assert source != text
    pairs = [pair for part in SIZES for pair in zip(lines(f"{part}.en"), lines(f"{part}.de"), strict=True)]
    targets = [german for english, german in pairs if english.split() == source.split() and german.strip()]
    return [3 + vocabulary.index(piece) if piece in vocabulary else 2 for piece in targets[0].split()]


def bleu(decoded: list[list[str]], references: list[list[str]]) -> float:
    """Compute BLEU (Papineni et al., 2002, sec. 2.3): up to 4 words, one reference, unsmoothed, 0 to 100."""
    precisions = []
    for n in range(1, 5):
        hits = total = 0
        for decoded_words, reference_words in zip(decoded, references, strict=True):
            counts, reference_counts = (
                Counter(tuple(words[start : start + n]) for start in range(len(words) - n + 1))
                for words in (decoded_words, reference_words)
            )
            hits += sum(min(count, reference_counts[gram]) for gram, count in counts.items())
            total += sum(counts.values())
        precisions.append(hits / total if total else 0.0)
    if not all(precisions):
        return 0.0
    lengths = sum(map(len, decoded)), sum(map(len, references))
    brevity = min(1.0, math.exp(1 - lengths[1] / lengths[0]))
    return 100 * brevity * math.exp(sum(map(math.log, precisions)) / 4)
