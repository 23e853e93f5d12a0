"""Look questions up in the files, line by line, and number words by an independent count.

Loading this module writes the files: all combinations of a few verbs and names, shuffled.
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


def write_files(folder: Path, seed: int) -> str:
    """Write the three divisions to `folder`, and return its path."""
    for number, division in enumerate(("MCD1", "MCD2", "MCD3")):
        pairs = [pair(*words) for words in product(VERBS, VERBS, "012345", "012345") if words[2] != words[3]]
        random.Random(seed * 3 + number).shuffle(pairs)
        (folder / division).mkdir(parents=True)
        for part, size in SIZES.items():
            part_pairs, pairs = pairs[:size], pairs[size:]
            if part != "train":  # a name that is absent from training
                part_pairs[0] = tuple(text.replace("M0", "M9").replace("M1", "M9") for text in part_pairs[0])
            for side, texts in zip(("src", "tgt"), zip(*part_pairs, strict=True), strict=True):
                (folder / division / f"{part}.{side}").write_text("".join(text + "\n" for text in texts))
    return str(folder)


def pair(verb: str, other_verb: str, name: str, other_name: str) -> tuple[str, ...]:
    question = f"Did M{name} {verb} a film and {other_verb} M{other_name}"
    clauses = [f"M{name} {VERBS[verb]} ?x0", "?x0 a film.film", f"M{name} {VERBS[other_verb]} M{other_name}"]
    return question, f"SELECT count ( * ) WHERE {{ {' . '.join(clauses)} }}"


SMALL = {"name": "cfq", "folder": write_files(FOLDER / "one", 0), "query_words_max": 19}
RESEEDED = SMALL | {"folder": write_files(FOLDER / "other", 1)}
VARIANTS = {"MCD3": {"division": "MCD3"}, "shorter": {"simplify": True}}


@cache
def lines(division: str, part: str, side: str, simplify: bool) -> list[list[str]]:
    text = (FOLDER / "one" / division / f"{part}.{side}").read_text()
    return [
        simplify_query(line) if simplify and side == "tgt" else line.split() for line in text.splitlines()
    ]


def simplify_query(query: str) -> list[str]:
    """Merge clauses that differ only in their objects, then only in subjects, then only in relations."""
    head, body = query.removesuffix(" }").split(" { ")
    clauses = [tuple({word} for word in clause.split()) for clause in body.split(" . ")]
    for place in (2, 0, 1):
        merged: list[tuple[set[str], ...]] = []
        for clause in clauses:
            fixed_places = [n for n in range(3) if n != place]
            for merged_clause in merged:
                if all(merged_clause[n] == clause[n] for n in fixed_places):
                    merged_clause[place].update(clause[place])
                    break
            else:
                merged.append(clause)
        clauses = merged
    joined_texts = sorted(" ".join(word for part in clause for word in sorted(part)) for clause in clauses)
    return f"{head} {{ {' . '.join(joined_texts)} }}".split()


@cache
def vocabulary(division: str, side: str, simplify: bool) -> list[str]:
    counts = Counter(word for line in lines(division, "train", side, simplify) for word in line)
    return sorted(counts, key=lambda word: (-counts[word], word))


def solve(text: str, division: str = "MCD1", simplify: bool = False) -> list[int]:
    """Return the query of a question as numbers of words: 0 ends it, 1 is an unknown word."""
    question_words = text.split()
    assert question_words.pop() == "</s>"
    words, answers = (vocabulary(division, side, simplify) for side in ("src", "tgt"))
    (query_words,) = [
        query
        for part in SIZES
        for question, query in zip(
            *(lines(division, part, side, simplify) for side in ("src", "tgt")), strict=True
        )
        if [word if word in words else "<unk>" for word in question] == question_words
    ]
    return [2 + answers.index(word) if word in answers else 1 for word in query_words]
