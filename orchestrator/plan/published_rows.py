"""Rows of published tables as plans hold them: whose they are, and which cell of a grid."""

from collections.abc import Mapping
from typing import Any

from search_spaces.paths import lookup

Row = Mapping[str, Any]


def of_cell(row: Row, settings: Mapping[str, Any]) -> bool:
    """Whether `settings` are in the cell that the row names; plans from before rows named one have any."""
    return all(lookup(settings, path) == value for path, value in row.get("cell", {}).items())


def name_of(row: Row) -> str:
    """The system of the row with its cell: `baseline[model.width=64]`."""
    cell = ",".join(f"{path}={value}" for path, value in row.get("cell", {}).items())
    return f"{row['arm']}[{cell}]" if cell else str(row["arm"])
