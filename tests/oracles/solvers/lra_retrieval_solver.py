"""Papers that cite one another start with the same number; loading this module writes the published files."""

import atexit
import random
import shutil
import tempfile
from pathlib import Path

FOLDER = Path(tempfile.mkdtemp(prefix="haltsweep papers "))
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)


def write_files(folder: Path, seed: int) -> str:
    """Write three files to `folder`, and return its path. Some texts contain quotation marks."""
    stream = random.Random(seed)
    folder.mkdir()
    for part, number in (("train", 40), ("eval", 10), ("test", 10)):
        lines = []
        for index in range(number):
            first = stream.randrange(10_000, 90_000)
            second = first if index % 2 else first + 1
            texts = [
                f'{key} "{"".join(stream.choices("xyz", k=stream.randrange(5, 40)))}'
                for key in (first, second)
            ]
            lines.append(f"{float(index % 2)}\tP{index}\tW{index}\t{texts[0]}\t{texts[1]}\n")
        (folder / f"new_aan_pairs.{part}.tsv").write_text("".join(lines), "utf-8")
    return str(folder)


SMALL = {"name": "lra_retrieval", "folder": write_files(FOLDER / "one", 0), "length_max": 24}
RESEEDED = SMALL | {"folder": write_files(FOLDER / "other", 1)}
VARIANTS = {"quotes of fields": {"quotes": "fields"}}


def solve(text: str, quotes: str = "letters") -> int:
    """Return the label; no text starts with a quotation mark, so both ways of quoting give the same label."""
    first, second = text.split(" <sep> ")
    return int(first.split()[0] == second.split()[0])
