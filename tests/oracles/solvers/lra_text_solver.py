"""Reviews of random letters after a word of opinion; loading this module writes the published files."""

import atexit
import random
import shutil
import tempfile
from pathlib import Path

FOLDER = Path(tempfile.mkdtemp(prefix="haltsweep reviews "))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)


def write_files(folder: Path, seed: int) -> str:
    """Write 20 + 20 reviews for training and 10 + 10 for the test to `folder`, and return its path."""
    stream = random.Random(seed)
    for part, number in (("train", 20), ("test", 10)):
        for opinion in ("pos", "neg"):
            (folder / part / opinion).mkdir(parents=True)
            for index in range(number):
                letters = "".join(stream.choices("aeiou äß", k=stream.randrange(20, 60)))
                word = "splendid" if opinion == "pos" else "dreadful"
                text = f"{word} {index} {part} {letters}"
                (folder / part / opinion / f"{index}_{7 if opinion == 'pos' else 2}.txt").write_text(
                    text, "utf-8"
                )
    return str(folder)


SMALL = {"name": "lra_text", "folder": write_files(FOLDER / "one", 0), "length_max": 48, "valid_examples": 6}
RESEEDED = SMALL | {"folder": write_files(FOLDER / "other", 1)}


def solve(text: str) -> int:
    return ["dreadful", "splendid"].index(text.split(maxsplit=1)[0])
