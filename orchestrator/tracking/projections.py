"""Store digests of the Parquet files, by which readers detect changed or damaged files."""

from pathlib import Path

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_fixed

from orchestrator.errors import StoreError
from orchestrator.files.abandoned_folders import is_own_file
from orchestrator.files.file_digests import digest_of, seal_json, unseal_json
from orchestrator.files.regular_files import read_regular
from orchestrator.identity import SweepFolder
from trainables.atomic import write_atomically

LIST = "projections.json"


class Projections:
    """Writer of the Parquet files of a sweep and of the list of their digests."""

    def __init__(self, folder: SweepFolder) -> None:
        self._folder = folder
        self._digests = read_digests(folder)
        for place in (folder.root, folder.measurements):
            for file in (*place.glob(".*.parquet.*"), *place.glob(f".{LIST}.*")):
                if is_own_file(file):  # a file of a killed writer, since only one writer runs at a time
                    file.unlink(missing_ok=True)

    def holds(self, file: Path, content: bytes) -> bool:
        """Return whether the file has this content, and the list contains a matching digest."""
        digest = digest_of(content)
        try:
            current = digest_of(read_regular(file))
        except OSError:  # `put` reports the obstacle
            return False
        return current == digest == self._digests.get(self._relative_name(file))

    def put(self, file: Path, content: bytes) -> None:
        """Replace the file. Raise `OSError` if that fails."""
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, content)
        self._digests[self._relative_name(file)] = digest_of(content)
        self._write()

    def drop_others(self, needed: set[Path]) -> int:
        """Delete all measurements files except those in `needed`; return the number of deleted files."""
        extra_files = [
            file
            for file in self._folder.measurements.glob("*.parquet")
            if file not in needed and is_own_file(file)
        ]
        for file in extra_files:
            file.unlink()
        names = {self._relative_name(file) for file in needed}
        if extra_names := self._digests.keys() - names:
            for name in extra_names:
                del self._digests[name]
            self._write()
        return len(extra_files)

    def _relative_name(self, file: Path) -> str:
        return file.relative_to(self._folder.root).as_posix()

    def _write(self) -> None:
        write_atomically(self._folder.root / LIST, seal_json({"files": self._digests}))


def read_digests(folder: SweepFolder) -> dict[str, str]:
    """Return digests by name relative to the folder; empty if the list is missing or damaged."""
    try:
        return dict(unseal_json(read_regular(folder.root / LIST))["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}


# A file and its digest are replaced one after the other.
RETRYING = Retrying(
    retry=retry_if_exception_type(StoreError), wait=wait_fixed(0.1), stop=stop_after_attempt(20), reraise=True
)


def read_sound(folder: SweepFolder, file: Path) -> bytes:
    """Return the content of a Parquet file. Raise `StoreError` if it was changed or damaged.

    Raises:
        OSError: The file is not readable.
        StoreError: The file was changed or damaged.
    """
    return RETRYING.copy()(_read_once, folder, file)


def _read_once(folder: SweepFolder, file: Path) -> bytes:
    content = read_regular(file)
    if read_digests(folder).get(file.relative_to(folder.root).as_posix()) == digest_of(content):
        return content
    raise StoreError(
        f"{str(file)!r} must have the content that haltsweep wrote, but was changed or damaged; make it "
        "again with `haltsweep sync`"
    )
