"""Implement `haltsweep records`, which prints trials or measurements for pandas and other tools."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.locations import runs_root
from orchestrator.cli.options import Runs, Storage, SweepName
from orchestrator.errors import InputError
from search_spaces.wording import escape_unprintable

if TYPE_CHECKING:
    import pyarrow as pa


FORMULA_PREFIXES = ("=", "+", "-", "@", "\t", "\r")
"""Prefixes of texts that spreadsheets interpret as formulas."""


class TableFormat(StrEnum):
    """File format of a table."""

    CSV = "csv"
    PARQUET = "parquet"


def records(
    name: SweepName,
    measurements: Annotated[
        bool,
        typer.Option(
            "--measurements", help="One row per trial, step and metric, instead of one row per trial."
        ),
    ] = False,
    table_format: Annotated[
        TableFormat, typer.Option("--format", help="Format of the output.")
    ] = TableFormat.CSV,
    runs: Runs = None,
    storage: Storage = None,
) -> None:
    """Print the trials of a sweep as CSV or Parquet."""
    if table_format is TableFormat.PARQUET and sys.stdout.isatty():
        raise InputError(
            "--format parquet: binary output cannot be displayed on a terminal. "
            f"Add > {name}.parquet, or use --format csv."
        )
    from orchestrator.cli.stored_sweep import open_stored_sweep
    from orchestrator.tracking.flat_tables import measurements_table, trials_table

    with open_stored_sweep(name, runs_root(runs), storage) as sweep:
        if measurements:
            table = measurements_table(sweep.ledger.events(), sweep.plan)
        else:
            table = trials_table(sweep.newest_records(), sweep.plan)
    content = _to_csv(table) if table_format is TableFormat.CSV else _to_parquet(table)
    with _ignore_closed_pipe():
        if sys.stdout.isatty():
            sys.stdout.write(escape_unprintable(content.decode()))
        else:
            sys.stdout.flush()
            sys.stdout.buffer.write(content)
        sys.stdout.flush()


def _to_csv(table: "pa.Table") -> bytes:
    """Return the table as UTF-8 CSV with a header, quoted texts, and empty fields for null.

    A text that begins like a formula gets a leading apostrophe unless it is a number.
    """
    import pyarrow as pa
    from pyarrow import csv

    for index, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            escaped_texts = pa.array(map(_escape_formula, table.column(index).to_pylist()), pa.string())
            table = table.set_column(index, field.name, escaped_texts)
    table = table.rename_columns([_escape_formula(name) or "" for name in table.column_names])
    sink = pa.BufferOutputStream()
    csv.write_csv(table, sink)
    return bytes(sink.getvalue())


def _escape_formula(text: str | None) -> str | None:
    """Return the text, with a leading apostrophe if a spreadsheet would evaluate it as a formula."""
    if text is None or not text.startswith(FORMULA_PREFIXES):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def _to_parquet(table: "pa.Table") -> bytes:
    import pyarrow as pa
    from pyarrow import parquet

    sink = pa.BufferOutputStream()
    parquet.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


@contextmanager
def _ignore_closed_pipe() -> Iterator[Any]:
    """Ignore a closed pipe, for example from `head`."""
    try:
        yield
    except BrokenPipeError:
        # Otherwise Python would write the remaining output at exit and print an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
