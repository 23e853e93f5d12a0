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
VARIANTS = {"MCD3": {"division": "MCD3"}, "shorter": {"simplify": True}}


@cache
def lines(division: str, part: str, side: str, simplify: bool) -> list[list[str]]:
    text = (FOLDER / "one" / division / f"{part}.{side}").read_text()
    return [shorter(line) if simplify and side == "tgt" else line.split() for line in text.splitlines()]


def shorter(query: str) -> list[str]:
    """Clauses are joined two by two, as long as two differ in objects, then in subjects, then relations."""
    head, body = query.removesuffix(" }").split(" { ")
    clauses = [tuple({word} for word in clause.split()) for clause in body.split(" . ")]
    for place in (2, 0, 1):
        joined: list[tuple[set[str], ...]] = []
        for clause in clauses:
            others = [n for n in range(3) if n != place]
            for one in joined:
                if all(one[n] == clause[n] for n in others):
                    one[place].update(clause[place])
                    break
            else:
                joined.append(clause)
        clauses = joined
    written = sorted(" ".join(word for part in clause for word in sorted(part)) for clause in clauses)
    return f"{head} {{ {' . '.join(written)} }}".split()


@cache
def known(division: str, side: str, simplify: bool) -> list[str]:
    counts = Counter(word for line in lines(division, "train", side, simplify) for word in line)
    return sorted(counts, key=lambda word: (-counts[word], word))


def solve(text: str, division: str = "MCD1", simplify: bool = False) -> list[int]:
    """The query of the question, each word as its number: 0 ends it, 1 is unknown."""
    asked = text.split()
    assert asked.pop() == "</s>"
    words, answers = (known(division, side, simplify) for side in ("src", "tgt"))
    (found,) = [
        query
        for part in SIZES
        for question, query in zip(
            *(lines(division, part, side, simplify) for side in ("src", "tgt")), strict=True
        )
        if [word if word in words else "<unk>" for word in question] == asked
    ]
    return [2 + answers.index(word) if word in answers else 1 for word in found]
