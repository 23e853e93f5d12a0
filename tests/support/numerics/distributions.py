"""Imitated installed packages: modules, and a folder with entry points."""

import shutil
from collections.abc import Mapping
from pathlib import Path

PROJECT = Path(__file__).parents[2] / "outside" / "project"
"""An installable package with a model, a task and a search space."""
SPEC = PROJECT.with_name("majority.yaml")
"""Spec for an environment in which the package is installed."""
ENTRIES = {"models": {"gru": "gru_kit.gru"}, "tasks": {"majority": "gru_kit.majority"}} | {
    "spaces": {"rates": "gru_kit.rates"}
}


def install_package(
    folder: Path, name: str, entries: Mapping[str, Mapping[str, str]], files: Mapping[str, str] | None = None
) -> None:
    """Install `name` 0.1 in `folder`, with its `files` and its entry points in the groups `haltsweep.*`."""
    for path, text in (files or {}).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    metadata = folder / f"{name.replace('-', '_')}-0.1.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    groups = [
        "\n".join([f"[haltsweep.{group}]", *(f"{key} = {value}" for key, value in targets.items())])
        for group, targets in entries.items()
    ]
    (metadata / "entry_points.txt").write_text("\n\n".join(groups))


def install_gru_kit(folder: Path) -> None:
    """Install the package of `PROJECT` in `folder`."""
    shutil.copytree(PROJECT / "gru_kit", folder / "gru_kit")
    install_package(folder, "gru-kit", ENTRIES)
