"""The command line as a whole: help, exit codes and errors."""

import json
import re
import subprocess
from importlib import metadata

import pytest
import typer
from jsonschema import Draft202012Validator

from orchestrator.cli import main
from orchestrator.cli.commands import status
from orchestrator.errors import InputError, LeaseLost, StoreError
from tests.support.processes.commands import COMMAND, PATIENCE_S, commands_by_name

COMMANDS = commands_by_name(typer.main.get_command(main.app))


def test_help_lists_every_command(haltsweep):
    result = haltsweep("--help")
    assert result.code == 0
    for name in {name.split()[0] for name in COMMANDS}:
        assert re.search(rf"^│ {name} +[A-Z]", result.out, re.MULTILINE)


def test_version_is_printed(haltsweep):
    result = haltsweep("--version")
    assert (result.code, result.out) == (0, f"haltsweep {metadata.version('haltsweep')}\n")


def test_every_command_and_option_has_a_help_text():
    for name, command in COMMANDS.items():
        assert command.help, name
        assert all(parameter.help for parameter in command.params if parameter.name != "help"), name


def test_schema_is_a_json_schema(haltsweep):
    result = haltsweep("schema")
    assert result.code == 0
    schema = json.loads(result.out)
    Draft202012Validator.check_schema(schema)
    assert {"name", "baseline", "arms", "search", "confirm"} <= set(schema["properties"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [(("lunch",), "'launch'"), (("plan",), "'SPEC'"), (("launch", "x.yaml", "--cpus", "many"), "'--cpus'")],
)
def test_usage_errors_exit_with_code_2(haltsweep, arguments, expected):
    result = haltsweep(*arguments)
    assert (result.code, result.out) == (2, "")
    assert expected in " ".join(re.sub("[│╭╮╰╯─]", " ", result.err).split())
    assert result.err.startswith("Usage: haltsweep ")


@pytest.mark.parametrize(
    ("error", "code", "expected"),
    [
        (InputError("the spec must change"), 2, "the spec must change\n"),
        (StoreError("the disk is gone"), 1, "the disk is gone\n"),
        (LeaseLost("another [process] holds it"), 1, "another [process] holds it\n"),
        (PermissionError(13, "Permission denied", "runs"), 1, "Permission denied: 'runs'"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_error_prints_one_message_and_sets_the_exit_code(haltsweep, monkeypatch, error, code, expected):
    def fail(*_):
        raise error

    monkeypatch.setattr(status, "runs_root", fail)
    result = haltsweep("status", "x")
    assert (result.code, result.out) == (code, "")
    assert expected in result.err
    assert "Traceback" not in result.err


def test_deleted_working_directory_is_reported(haltsweep, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for command in ("list", "launch"):
        result = haltsweep(command, str(tmp_path / "some.yaml"))
        assert (result.code, result.out) == (2, "")
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("redirection", "code"), [("<&- >&- 2>&-", 0), ("nowhere <&- >&-", 2)])
def test_closed_standard_streams_are_replaced(tmp_path, redirection, code):
    command = "status" if code else "list"
    process = subprocess.run(
        ["sh", "-c", f'exec "$0" {command} {redirection}', COMMAND],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        timeout=PATIENCE_S,
        check=False,
    )
    assert process.returncode == code
    assert (b"no sweep named 'nowhere'" in process.stderr) is bool(code)
    assert process.stderr.count(b"\n") == bool(code)
