"""Exact messages: `<name>.txt` holds the expected messages about `<name>.yaml` in the same folder."""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

GOLDEN = Path(__file__).parents[2] / "golden"


@dataclass(frozen=True)
class GoldenMessages:
    """Expected messages of one folder."""

    folder: Path
    messages_of: Callable[[str], str]
    """Returns the messages about the spec of a name, called inside the folder."""

    @property
    def names(self) -> list[str]:
        return sorted(path.stem for path in self.folder.glob("*.yaml"))

    def check_complete(self, least: int) -> None:
        assert len(self.names) >= least
        assert sorted(path.stem for path in self.folder.glob("*.txt")) == self.names

    def check(self, name: str) -> None:
        with contextlib.chdir(self.folder):
            assert self.messages_of(name) == Path(f"{name}.txt").read_text(encoding="utf-8")

    def rewrite(self) -> None:
        """Rewrite all expected messages, after an intended change of wording."""
        with contextlib.chdir(self.folder):
            for name in self.names:
                Path(f"{name}.txt").write_text(self.messages_of(name), encoding="utf-8")
