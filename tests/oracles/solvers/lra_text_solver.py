"""Reviews whose opinion is one word in a letter soup; files as published, written when this is loaded."""

import atexit
import random
import shutil
import tempfile
from pathlib import Path

FOLDER = Path(tempfile.mkdtemp(prefix="haltsweep reviews "))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)


def written(folder: Path, seed: int) -> str:
    """The path of `folder` after 20 + 20 reviews for training and 10 + 10 for the test have been written."""
    stream = random.Random(seed)
    for part, number in (("train", 20), ("test", 10)):
        for opinion in ("pos", "neg"):
            (folder / part / opinion).mkdir(parents=True)
            for index in range(number):
                soup = "".join(stream.choices("aeiou äß", k=stream.randrange(20, 60)))
                word = "splendid" if opinion == "pos" else "dreadful"
                text = f"{word} {index} {part} {soup}"
                (folder / part / opinion / f"{index}_{7 if opinion == 'pos' else 2}.txt").write_text(
                    text, "utf-8"
                )
    return str(folder)


SMALL = {"name": "lra_text", "folder": written(FOLDER / "one", 0), "length_max": 48, "valid_examples": 6}
RESEEDED = SMALL | {"folder": written(FOLDER / "other", 1)}


def solve(text: str) -> int:
    return ["dreadful", "splendid"].index(text.split(maxsplit=1)[0])
