"""Questions looked up in the files again, line by line, and words numbered by counting them anew.

The files are written when this module is loaded: all combinations of a few verbs and names, shuffled.
"""

import atexit
import random
import shutil
import tempfile
from collections import Counter
from functools import cache
from itertools import product
from pathlib import Path

FOLDER = Path(tempfile.mkdtemp(prefix="haltsweep cfq "))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
VERBS = {"direct": "film.director.film", "write": "film.writer.film", "edit": "film.editor.film"}
SIZES = {"train": 60, "dev": 9, "test": 10}


def written(folder: Path, seed: int) -> str:
    """The path of `folder` after its three divisions have been written."""
    for number, division in enumerate(("MCD1", "MCD2", "MCD3")):
        pairs = [pair(*words) for words in product(VERBS, VERBS, "012345", "012345") if words[2] != words[3]]
        random.Random(seed * 3 + number).shuffle(pairs)
        (folder / division).mkdir(parents=True)
        for part, size in SIZES.items():
            chosen, pairs = pairs[:size], pairs[size:]
            if part != "train":  # a name that nobody was trained on
                chosen[0] = tuple(text.replace("M0", "M9").replace("M1", "M9") for text in chosen[0])
            for side, texts in zip(("src", "tgt"), zip(*chosen, strict=True), strict=True):
                (folder / division / f"{part}.{side}").write_text("".join(text + "\n" for text in texts))
    return str(folder)


def pair(verb: str, other: str, name: str, also: str) -> tuple[str, ...]:
    question = f"Did M{name} {verb} a film and {other} M{also}"
    clauses = [f"M{name} {VERBS[verb]} ?x0", "?x0 a film.film", f"M{name} {VERBS[other]} M{also}"]
    return question, f"SELECT count ( * ) WHERE {{ {' . '.join(clauses)} }}"


SMALL = {"name": "cfq", "folder": written(FOLDER / "one", 0), "query_words_max": 19}
RESEEDED = SMALL | {"folder": written(FOLDER / "other", 1)}


@cache
def lines(part: str, side: str) -> list[list[str]]:
    return [line.split() for line in (FOLDER / "one" / "MCD1" / f"{part}.{side}").read_text().splitlines()]


@cache
def known(side: str) -> list[str]:
    counts = Counter(word for line in lines("train", side) for word in line)
    return sorted(counts, key=lambda word: (-counts[word], word))


def solve(text: str) -> list[int]:
    """The query of the question, each word as its number: 0 ends it, 1 is unknown."""
    asked = text.split()
    assert asked.pop() == "</s>"
    words, answers = known("src"), known("tgt")
    (found,) = [
        query
        for part in SIZES
        for question, query in zip(lines(part, "src"), lines(part, "tgt"), strict=True)
        if [word if word in words else "<unk>" for word in question] == asked
    ]
    return [2 + answers.index(word) if word in answers else 1 for word in found]
