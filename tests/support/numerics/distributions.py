"""Packages of others, as an installer leaves them: modules beside a folder that says what they offer."""

import shutil
from collections.abc import Mapping
from pathlib import Path

PROJECT = Path(__file__).parents[2] / "outside" / "project"
"""An installable package with a model, a task and a search space."""
SPEC = PROJECT.with_name("majority.yaml")
"""What can be launched where it is installed."""
ENTRIES = {"models": {"gru": "gru_kit.gru"}, "tasks": {"majority": "gru_kit.majority"}} | {
    "spaces": {"rates": "gru_kit.rates"}
}


def distribution(
    folder: Path, name: str, entries: Mapping[str, Mapping[str, str]], files: Mapping[str, str] | None = None
) -> None:
    """Install `name` 0.1 in `folder`: its `files`, and what it offers in the groups `haltsweep.*`."""
    for path, text in (files or {}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    info = folder / f"{name.replace('-', '_')}-0.1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    groups = [
        "\n".join([f"[haltsweep.{group}]", *(f"{key} = {value}" for key, value in project_memory.items())])
        for group, project_memory in entries.items()
    ]
    (info / "entry_points.txt").write_text("\n\n".join(groups))


def gru_kit(folder: Path) -> None:
    """Install the package of `PROJECT` in `folder`."""
    shutil.copytree(PROJECT / "gru_kit", folder / "gru_kit")
    distribution(folder, "gru-kit", ENTRIES)
