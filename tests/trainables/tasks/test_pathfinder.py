"""Pathfinder reads published images from files."""

import logging
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pydantic import ValidationError

from trainables.data.split import Split, content_hash
from trainables.data.store import open_split, split_path
from trainables.generators.images import PAD, PIXELS
from trainables.tasks import pathfinder


def build_split(name: str, **settings: object) -> Split:
    table = pathfinder.build(pathfinder.Config(**settings), name)
    return Split(table, PAD, content_hash(table))


IMAGES = 23


@pytest.fixture
def published_files(tmp_path: Path) -> Path:
    """A folder in the published format with two parts; image 7 is an empty file."""
    folder = tmp_path / "pathfinder32"
    contour_folder = folder / "curv_contour_length_14"
    (contour_folder / "metadata").mkdir(parents=True)
    for part, numbers in ((2, range(10)), (10, range(10, IMAGES))):
        (contour_folder / f"imgs/{part}").mkdir(parents=True)
        lines = []
        for number in numbers:
            file = contour_folder / f"imgs/{part}/sample_{number}.png"
            pixels = np.full((32, 32), number, dtype=np.uint8)
            pixels[0, 0] = 255 * (number % 2)
            Image.fromarray(pixels).save(file)
            lines.append(f"imgs/{part} sample_{number}.png {number} {number % 2} 1.0 14 4 2 0.5 1 1\n")
        (contour_folder / f"metadata/{part}.npy").write_text("".join(lines))
    (contour_folder / "imgs/2/sample_7.png").write_bytes(b"")
    return folder


def test_published_images_are_read(published_files: Path, caplog: pytest.LogCaptureFixture) -> None:
    numbers_by_split = {}
    with caplog.at_level(logging.WARNING):
        for name in ("train", "valid", "test"):
            part = build_split(name, folder=str(published_files))
            batch = part.batch(np.arange(len(part)))
            numbers_by_split[name] = batch.tokens[:, 1].tolist()
            assert batch.labels.tolist() == [number % 2 for number in numbers_by_split[name]]
            assert batch.tokens[:, 0].tolist() == [255 * (number % 2) for number in numbers_by_split[name]]
            assert batch.tokens.shape[1] == PIXELS
    assert "1 of 23 " in caplog.text
    assert {name: len(part) for name, part in numbers_by_split.items()} == {
        "train": 16,
        "valid": 3,
        "test": 3,
    }
    assert sorted(number for part in numbers_by_split.values() for number in part) == [
        number for number in range(IMAGES) if number != 7
    ]
    assert numbers_by_split["train"] != sorted(numbers_by_split["train"])
    reseeded_numbers = (
        build_split("test", folder=str(published_files), data_seed=1)
        .batch(np.arange(3))
        .tokens[:, 1]
        .tolist()
    )
    assert reseeded_numbers != numbers_by_split["test"]


def test_larger_images_are_read(published_files: Path) -> None:
    """An example of larger images is Path-X; the size must match the files."""
    side = 64
    folder = published_files.with_name(f"pathfinder{side}")
    published_files.rename(folder)
    config = pathfinder.Config(folder=str(folder), side=side)
    with pytest.raises(ValueError, match=rf"{side} x {side} .* 32 x 32"):
        pathfinder.build(config, "test")
    for file in folder.glob("*/imgs/*/*.png"):
        if file.stat().st_size:
            pixels = np.tile(np.arange(side, dtype=np.uint8), (side, 1))
            Image.fromarray(pixels).save(file)
    part = build_split("test", folder=str(folder), side=side)
    assert part.lengths.tolist() == [side**2] * 3
    assert part.batch(np.arange(3)).tokens[:, : side + 1].tolist() == [[*range(side), 0]] * 3
    assert pathfinder.shape(config).length_max == pathfinder.splits(config)[0].length_min == side**2
    assert len(pathfinder.picture([0] * side**2).splitlines()) == side


def test_missing_files_error_names_the_files(published_files: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="curv_baseline/metadata"):
        open_split(
            pathfinder.Config(folder=str(published_files), contour_length=6), "train", tmp_path / "data"
        )
    assert not (tmp_path / "data").exists()
    contour_folder = published_files / "curv_contour_length_14"
    (contour_folder / "imgs/2/sample_3.png").unlink()
    with pytest.raises(ValueError, match=r"sample_3\.png"):
        open_split(pathfinder.Config(folder=str(published_files)), "train", tmp_path / "data")


def test_image_listed_twice_is_refused(published_files: Path) -> None:
    """A repeated image could be in training and test. The byte order mark belongs to no name."""
    first, second = (published_files / f"curv_contour_length_14/metadata/{part}.npy" for part in (2, 10))
    first.write_bytes("\ufeff".encode() + first.read_bytes())
    config = pathfinder.Config(folder=str(published_files))
    assert len(pathfinder.build(config, "train")) == 16
    second.write_bytes(second.read_bytes() + first.read_bytes().splitlines(keepends=True)[3])
    with pytest.raises(ValueError, match=r"10\.npy, line 14"):
        pathfinder.build(config, "train")


@pytest.mark.parametrize("line", [b"imgs/2 sample_4.png 4 2 1.0", b"", b"../../etc sample_4.png 4 1"])
def test_malformed_line_error_has_file_and_line(published_files: Path, line: bytes, tmp_path: Path) -> None:
    file = published_files / "curv_contour_length_14/metadata/2.npy"
    lines = file.read_bytes().splitlines()
    lines[4] = line
    file.write_bytes(b"\n".join(lines))
    config = pathfinder.Config(folder=str(published_files))
    with pytest.raises(ValueError, match=r"2\.npy, line 5"):
        open_split(config, "train", tmp_path / "data")
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"GIF89a no image", r"sample_1\.png"), (None, r"sample_1\.png: .*32 x 32 .*RGB")],
)
def test_invalid_image_is_refused(
    published_files: Path, tmp_path: Path, content: bytes | None, message: str
) -> None:
    for file in published_files.glob("*/imgs/*/sample_1?.png"):
        if content is None:
            Image.new("RGB", (16, 32)).save(file)
        else:
            file.write_bytes(content)
    config = pathfinder.Config(folder=str(published_files))
    message = message.replace(r"sample_1\.png", r"sample_1\d\.png")
    with pytest.raises(ValueError, match=message):
        open_split(config, "train", tmp_path / "data")
    assert not split_path(config, "train", tmp_path / "data").exists()


def test_sizes_with_a_folder_are_refused() -> None:
    with pytest.raises(ValidationError):
        pathfinder.Config(folder="somewhere", valid_examples=3)
    infos = pathfinder.splits(pathfinder.Config(folder="somewhere"))
    assert {info.examples for info in infos} == {None}
