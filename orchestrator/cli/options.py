"""Define arguments and options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from orchestrator.errors import InputError
from orchestrator.files.known_addresses import record_addresses


def _parse_folder(text: str) -> Path:
    """Return the folder of an option. Raise `InputError` for an empty text, e.g. from an unset variable."""
    if not text:
        raise InputError("the path of a folder must not be empty; give a path, or omit the option")
    return Path(text)


def _parse_location(text: str) -> str:
    """Return the location of an option. Raise `InputError` for an empty text, e.g. from an unset variable."""
    if not text.strip():
        raise InputError("a location must not be empty; omit the option instead")
    return text


def _parse_address(text: str) -> str:
    """Return the address of an option, and record that the user named it. Raise `InputError` if empty."""
    address = _parse_location(text)
    record_addresses(address)
    return address


SpecPath = Annotated[Path, typer.Argument(help="Spec file (YAML).", metavar="SPEC")]
Overrides = Annotated[
    list[str] | None, typer.Argument(help="Overrides, e.g. baseline.train.steps=100.", metavar="KEY=VALUE")
]
Profile = Annotated[
    str | None,
    typer.Option(
        help="Profile of the spec to apply. With the profile small, the sweep is called NAME-small."
    ),
]
SweepName = Annotated[str, typer.Argument(help="Name of a sweep, or its folder.", metavar="NAME")]
Runs = Annotated[
    Path | None,
    typer.Option(
        help="Folder of all sweeps. Default: $HALTSWEEP_RUNS, else ./runs.",
        metavar="DIR",
        parser=_parse_folder,
    ),
]
Data = Annotated[
    Path | None,
    typer.Option(
        help="Folder of all datasets. Default: $HALTSWEEP_DATA, else ./data.",
        metavar="DIR",
        parser=_parse_folder,
    ),
]
Storage = Annotated[
    str | None,
    typer.Option(
        help="URL of the database for the ledger, e.g. postgresql+psycopg://... Default: a file in the "
        "sweep's folder.",
        metavar="URL",
        parser=_parse_address,
    ),
]
Tracking = Annotated[
    str | None,
    typer.Option(
        help="MLflow tracking URI. Default: $MLFLOW_TRACKING_URI, else RUNS/mlflow.db.",
        metavar="URI",
        parser=_parse_address,
    ),
]
LaunchTracking = Annotated[
    str | None,
    typer.Option(
        help="MLflow tracking URI, or `none` to write to MLflow only with `haltsweep sync`. Default: "
        "$MLFLOW_TRACKING_URI, else RUNS/mlflow.db.",
        metavar="URI",
        parser=_parse_address,
    ),
]
Checkpoints = Annotated[
    str | None,
    typer.Option(
        help="URI for checkpoints, e.g. s3://bucket/folder, if machines share no folder. Default: the "
        "sweep's folder.",
        metavar="URI",
        parser=_parse_location,
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        help="A running Ray cluster. Default: start Ray on this machine.",
        metavar="HOST:PORT",
        parser=_parse_location,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
TakeOver = Annotated[
    bool,
    typer.Option(
        "--take-over",
        help="Take over the sweep from a session that died or hangs; that session can then no longer write.",
    ),
]
