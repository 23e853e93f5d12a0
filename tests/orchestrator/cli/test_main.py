"""The command as a whole: help, exit codes, what happens to errors."""

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
from tests.support.processes.commands import COMMAND, PATIENCE_S, TINY, commands_by_name

COMMANDS = commands_by_name(typer.main.get_command(main.app))
ISSUED = {
    *(
        "new",
        "best",
        "bundle",
        "compare",
        "extend",
        "records",
        "check",
        "plan",
        "launch",
        "status",
        "list",
        "stop",
        "remove",
        "logs",
        "verify",
        "resume",
        "sync",
        "report",
        "ui",
    ),
    *("models", "tasks", "spaces", "schema", "doctor"),
    *("data build", "data show", "data verify"),
}


def test_help_lists_every_command(haltsweep):
    shown = haltsweep("--help")
    assert shown.code == 0
    assert set(COMMANDS) == ISSUED
    for name in {name.split()[0] for name in COMMANDS}:
        assert re.search(rf"^│ {name} +[A-Z]", shown.out, re.MULTILINE)
    assert "Exit codes: 0 done, 1 failed or unfinished, 2 bad input, 130 interrupted." in shown.out


def test_version_is_printed(haltsweep):
    shown = haltsweep("--version")
    assert (shown.code, shown.out) == (0, f"haltsweep {metadata.version('haltsweep')}\n")


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_and_option_has_a_help_text(haltsweep, name):
    command = COMMANDS[name]
    assert command.help
    assert command.help.rstrip().endswith(".")
    assert all(parameter.help for parameter in command.params if parameter.name != "help")
    assert haltsweep(*name.split(), "-h").out == haltsweep(*name.split(), "--help").out


def test_schema_is_a_json_schema(haltsweep):
    shown = haltsweep("schema")
    assert shown.code == 0
    found = json.loads(shown.out)
    Draft202012Validator.check_schema(found)
    assert {"name", "baseline", "arms", "search", "confirm"} <= set(found["properties"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("lunch",), "No such command 'lunch'. Did you mean 'launch'?"),
        (("plan",), "Missing argument 'SPEC'."),
        (("plan", "x.yaml", "--jsno"), "No such option: --jsno"),
        (("launch", "x.yaml", "--driver", "spark"), "Invalid value for '--driver': "),
        (("launch", "x.yaml", "--cpus", "many"), "Invalid value for '--cpus': "),
    ],
)
def test_wrong_usage_is_bad_input(haltsweep, arguments, expected):
    answer = haltsweep(*arguments)
    assert (answer.code, answer.out) == (2, "")
    assert expected in " ".join(re.sub("[│╭╮╰╯─]", " ", answer.err).split())
    assert answer.err.startswith("Usage: haltsweep ")


@pytest.mark.parametrize(
    ("error", "code", "expected"),
    [
        (InputError("the spec must change"), 2, "the spec must change\n"),
        (StoreError("the disk is gone"), 1, "the disk is gone\n"),
        (LeaseLost("another [process] holds it"), 1, "another [process] holds it\n"),
        (
            PermissionError(13, "Permission denied", "runs"),
            1,
            "Permission denied: 'runs'; make it readable and writable",
        ),
        (KeyboardInterrupt(), 130, "interrupted\n"),
    ],
)
def test_errors_are_one_message_and_a_code(haltsweep, monkeypatch, error, code, expected):
    def fail(*_):
        raise error

    monkeypatch.setattr(status, "runs_root", fail)
    answer = haltsweep("status", "x")
    assert (answer.code, answer.out) == (code, "")
    assert expected in answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize("length", [256, 5_000])
@pytest.mark.parametrize(
    "arguments",
    [
        ("models", "{name}"),
        ("tasks", "{name}"),
        ("verify", "{name}"),
        ("data", "show", "{name}"),
        ("plan", "tiny.yaml", "baseline.model.name={name}"),
        ("plan", "tiny.yaml", "baseline.task.name={name}"),
        ("plan", "tiny.yaml", "trainable={name}.py:train"),
        ("launch", "tiny.yaml", "--storage", "sqlite:///{name}", "--driver", "inline"),
        ("list", "--storage", "sqlite:///{name}"),
    ],
    ids=" ".join,
)
def test_a_name_that_is_too_long_for_a_file_is_bad_input(haltsweep, tmp_path, monkeypatch, arguments, length):
    (tmp_path / "tiny.yaml").write_text(TINY)
    monkeypatch.chdir(tmp_path)
    answer = haltsweep(*(each.format(name="a" * length) for each in arguments))
    assert (answer.code, answer.out) == (2, ""), answer.err
    assert [each.name for each in tmp_path.iterdir()] == ["tiny.yaml"], "nothing is written"


def test_a_deleted_working_directory_is_reported(haltsweep, tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for command in ("list", "launch"):
        answer = haltsweep(command, str(tmp_path / "some.yaml"))
        assert (answer.code, answer.out) == (2, "")
        assert "the working directory of this shell was deleted; chan" in answer.err
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("closed", "code"), [(">&-", 0), ("2>&-", 0), ("<&- >&- 2>&-", 0), ("nowhere <&- >&-", 2)]
)
def test_closed_standard_streams_are_replaced(tmp_path, closed, code):
    asked = "status" if code else "list"
    done = subprocess.run(
        ["sh", "-c", f'exec "$0" {asked} {closed}', COMMAND],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == code
    assert (b"no sweep named 'nowhere'" in done.stderr) is bool(code)
    assert done.stderr.count(b"\n") == bool(code)
