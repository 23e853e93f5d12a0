"""Commit a finished sweep as a study: `python -m tests.experiments.keep RUNS/NAME experiments/findings/NAME`.

The command copies the plan and the report with the pictures of its primary outcomes. It also copies the
records, without the names of machines and folders.
"""

import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from orchestrator.files.file_digests import MANIFEST
from orchestrator.identity import SweepFolder
from orchestrator.tracking.parquet import RECORDS, TableFile, to_row
from orchestrator.tracking.projections import Projections
from tests.support.stores.parquet_records import read_records

PRIVATE = frozenset({"command", "directory", "host", "jobs"})
"""Parts of provenance with names of a machine and its folders."""


def copy_study(sweep: Path, study: Path) -> None:
    """Copy the data of the report and of the claims into `study`."""
    source, target = SweepFolder(sweep), SweepFolder(study / "sweep")
    target.root.mkdir(parents=True, exist_ok=True)
    for name in (source.plan.name, MANIFEST):
        shutil.copyfile(source.root / name, target.root / name)
    records = [
        replace(
            record, provenance={key: record.provenance[key] for key in record.provenance.keys() - PRIVATE}
        )
        for record in read_records(source)
    ]
    table = pa.Table.from_pylist([to_row(record) for record in records], schema=RECORDS)
    Projections(target).put(target.records, TableFile(target.records, table, 0).encoded())
    text = (source.report / "report.md").read_text()
    (study / "report.md").write_text(re.sub(r"!\[[^\n]*\]\(values-\d+\.png\)\n\n?", "", text))
    for picture in (*source.report.glob("outcome-*.png"), *source.report.glob("difference-*.png")):
        shutil.copyfile(picture, study / picture.name)


if __name__ == "__main__":
    copy_study(*map(Path, sys.argv[1:]))
