"""Whether the Parquet files say what the ledger says. Writes nothing."""

from pathlib import Path

import pyarrow as pa

from orchestrator.errors import StoreError
from orchestrator.identity import SweepFolder
from orchestrator.ledger.store import Ledger
from orchestrator.plan.types import Plan
from orchestrator.tracking.parquet import POSITION, Tables, read_table


def check_files(folder: SweepFolder, plan: Plan, ledger: Ledger) -> dict[Path, str]:
    """What is wrong with each Parquet file that is there, by file; empty for those as they should be.

    A file made from the first events of the log alone is: it is merely behind.
    """
    there = [*sorted(folder.measurements.glob("*.parquet")), *[folder.records] * folder.records.exists()]
    found: dict[Path, str] = {}
    tables: dict[Path, tuple[int, pa.Table]] = {}
    for file in there:
        try:
            table = read_table(folder, file)
            tables[file] = int(table.schema.metadata[POSITION]), table.replace_schema_metadata(None)
        except StoreError as error:
            found[file] = str(error)
    found |= dict.fromkeys(tables, "it says what is nowhere in the ledger")
    due = sorted({position for position, _ in tables.values()}, reverse=True)
    expected = Tables(folder, plan)

    def compare() -> None:
        for made in (expected.measurements(), expected.records()):
            if made is None or made.file not in tables or tables[made.file][0] != expected.heard:
                continue
            same = made.table.replace_schema_metadata(None).equals(tables[made.file][1])
            found[made.file] = "" if same else "it says something else than the ledger"

    for event in ledger.events():
        while due and event.seq is not None and due[-1] < event.seq:
            due.pop()
            compare()
        expected.hear(event)
    compare()
    return found
