"""Read the published pathfinder images from their folder.

<folder>/curv_baseline/             contours of 6 paddles
<folder>/curv_contour_length_9/     contours of 9 paddles
<folder>/curv_contour_length_14/    contours of 14 paddles; in each folder
    metadata/<k>.npy                text, one line per image: folder, file, number, label, parameters
    imgs/<k>/sample_<n>.png         the images, 32 x 32 (64, 128 or 256 in separate folders), grey
"""

import logging
import os
from codecs import BOM_UTF8
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from trainables.data.files import source_folder, unreadable_error
from trainables.data.progress import report_each

LOG = logging.getLogger(__name__)
FOLDERS = {6: "curv_baseline", 9: "curv_contour_length_9", 14: "curv_contour_length_14"}
_FIELDS = 4


@dataclass(frozen=True, slots=True)
class ListedImage:
    """An image listed in the metadata."""

    path: str
    """Path below the folder of its contour length."""
    label: int


def image_folder(folder: str | Path, contour_length: int, side: int) -> Path:
    """Return the folder of images of that contour length. Raises `ValueError` if it lacks its metadata."""
    name = FOLDERS[contour_length]
    content = f"{name}/metadata/<k>.npy and {name}/imgs/<k>/sample_<n>.png (the published pathfinder{side})"
    remedy = ", or leave folder out to generate images"
    return source_folder(folder, [f"{name}/metadata"], content, remedy) / name


def metadata(folder: Path) -> list[Path]:
    """Return the files that list the images, sorted by their number. Raises `ValueError` if none exists."""
    files = [file for file in (folder / "metadata").glob("*.npy") if file.stem.isdecimal()]
    if not files:
        raise ValueError(
            f"{folder / 'metadata'} must contain the files <k>.npy that list the images, got none"
        )
    return sorted(files, key=lambda file: int(file.stem))


def listed_images(folder: Path) -> list[ListedImage]:
    """Return all images, in the order of the metadata. Raises `ValueError` with file, line and fault."""
    images: dict[str, ListedImage] = {}
    for file in metadata(folder):
        for line_number, image in enumerate(_lines(file), start=1):
            if image.path in images:
                raise ValueError(
                    f"{file}, line {line_number}: expected each image once, so that none is in two "
                    f"splits, got {image.path} again; remove the line"
                )
            images[image.path] = image
    return list(images.values())


def existing_images(target_folder: Path, images: list[ListedImage]) -> list[ListedImage]:
    """Return the images with non-empty files. Raises `ValueError` for missing files."""
    sizes: dict[str, dict[str, int]] = {}
    nonempty_images = []
    for image in images:
        folder, _, name = image.path.rpartition("/")
        if folder not in sizes:
            sizes[folder] = _sizes(target_folder / folder)
        if name not in sizes[folder]:
            raise ValueError(
                f"{target_folder / image.path} is missing, but {target_folder / 'metadata'} lists it; "
                "copy it there"
            )
        if sizes[folder][name]:
            nonempty_images.append(image)
    if len(nonempty_images) < len(images):
        LOG.warning(
            "%s: %d of %d images are empty files and left out",
            target_folder,
            len(images) - len(nonempty_images),
            len(images),
        )
    return nonempty_images


def read(folder: Path, images: list[ListedImage], side: int) -> np.ndarray:
    """Return grey levels (uint8, N x side^2). Raises `ValueError` with file and fault."""
    pixels = np.empty((len(images), side**2), dtype=np.uint8)
    for row, image in enumerate(report_each(images, "images", len(images))):
        size, mode, levels = _open(folder / image.path, side)
        if levels is None:
            raise ValueError(
                f"{folder / image.path}: expected a grey PNG image (mode L) of {side} x {side} pixels, got "
                f"mode {mode} and {size[0]} x {size[1]}"
            )
        pixels[row] = levels.reshape(-1)
    return pixels


def _open(file: Path, side: int) -> tuple[tuple[int, int], str, np.ndarray | None]:
    """Return size and mode of an image, and its pixels; None instead of pixels for another size or mode."""
    from PIL import Image

    try:
        with Image.open(file, formats=["PNG"]) as image_file:
            is_expected_form = image_file.size == (side, side) and image_file.mode == "L"
            return image_file.size, image_file.mode, np.asarray(image_file) if is_expected_form else None
    except OSError as error:
        if error.errno is not None:
            raise unreadable_error(file, error) from error
        raise ValueError(f"{file}: expected a PNG image, got {error}") from error
    except Exception as error:  # a damaged image can raise nearly anything
        raise ValueError(f"{file}: expected a PNG image, got {error}") from error


def _lines(file: Path) -> list[ListedImage]:
    images = []
    try:
        content = file.read_bytes()
    except OSError as error:
        raise unreadable_error(file, error) from error
    for line_number, line in enumerate(content.removeprefix(BOM_UTF8).splitlines(), start=1):
        fields = line.decode("utf-8", "replace").split(" ")
        path = PurePosixPath(*fields[:2])
        is_inside = not path.is_absolute() and ".." not in path.parts and "\0" not in str(path)
        if len(fields) < _FIELDS or fields[3] not in ("0", "1") or path.suffix != ".png" or not is_inside:
            shown_line = line[:200].decode("utf-8", "replace")
            raise ValueError(
                f"{file}, line {line_number}: expected folder, file (.png), number, label (0 or 1) and "
                f"parameters, separated by single spaces, got {shown_line!r}"
            )
        images.append(ListedImage(str(path), int(fields[3])))
    return images


def _sizes(folder: Path) -> dict[str, int]:
    """Return the size in bytes of each file in a folder, by name; broken links are left out."""
    try:
        with os.scandir(folder) as entries:
            return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
    except OSError as error:
        raise unreadable_error(folder, error) from error
