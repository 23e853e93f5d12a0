"""Messages to the letter: `<name>.txt` holds what `<name>.yaml`, in the same folder, must be told."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

GOLDEN = Path(__file__).parents[2] / "golden"


@dataclass(frozen=True)
class Messages:
    """Those of one folder."""

    folder: Path
    reported: Callable[[str], str]
    """What the spec of a name is told, from inside the folder."""

    @property
    def names(self) -> list[str]:
        return sorted(path.stem for path in self.folder.glob("*.yaml"))

    def check_complete(self, least: int) -> None:
        assert len(self.names) >= least
        assert sorted(path.stem for path in self.folder.glob("*.txt")) == self.names

    def check(self, name: str) -> None:
        with contextlib.chdir(self.folder):
            assert self.reported(name) == Path(f"{name}.txt").read_text(encoding="utf-8")

    def rewrite(self) -> None:
        """After a change of wording on purpose."""
        with contextlib.chdir(self.folder):
            for name in self.names:
                Path(f"{name}.txt").write_text(self.reported(name), encoding="utf-8")
