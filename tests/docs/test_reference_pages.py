"""The generated reference has every command, option, spec key, error, outcome and key of report.json."""

import dataclasses
import importlib.util
import re
from types import ModuleType

import pytest
import typer

from orchestrator import errors
from orchestrator.cli.main import app
from orchestrator.report.results.types import Report
from orchestrator.spec.schema import json_schema
from orchestrator.trials import OutcomeKind
from tests.architecture.source import ROOT
from tests.support.processes.commands import commands_by_name
from trainables.custom.function import FunctionTrial
from trainables.protocol import Job


@pytest.fixture(scope="module")
def pages() -> ModuleType:
    module_spec = importlib.util.spec_from_file_location(
        "reference_pages", ROOT / "docs" / "reference_pages.py"
    )
    module = importlib.util.module_from_spec(module_spec)
    module_spec.loader.exec_module(module)
    return module


def test_reference_has_every_command_with_its_options(pages: ModuleType) -> None:
    text = pages.commands()
    for name, command in commands_by_name(typer.main.get_command(app)).items():
        _, _, section = text.partition(f"# `haltsweep {name}`\n")
        section = re.split(r"^##", section, maxsplit=1, flags=re.MULTILINE)[0]
        options = {opt for param in command.params for opt in param.opts if opt.startswith("--")}
        assert options <= set(re.findall(r"--[a-z-]+", section)), name


def test_reference_explains_every_key_of_a_spec(pages: ModuleType) -> None:
    text = pages.spec()
    header = text.partition("## `")[0]
    keys = json_schema()["$defs"]["built-in"]["properties"]
    rows = {
        row[1].strip(" `"): row[-2].strip() for row in map(split_row, header.splitlines()) if len(row) == 5
    }
    assert keys.keys() <= rows.keys()
    undescribed = [key for key in keys if not rows[key]]
    assert undescribed == []
    for section in ("Answer", "Budget", "Confirm", "Objective", "Resources", "Search", "train"):
        assert f"## `{section}`\n" in text


def split_row(line: str) -> list[str]:
    return re.split(r"(?<!\\)\|", line)


def test_reference_has_every_error_and_outcome(pages: ModuleType) -> None:
    text = pages.exit_codes()
    raised = {
        var.__name__
        for var in vars(errors).values()
        if isinstance(var, type) and issubclass(var, errors.HaltsweepError)
    }
    assert {name for name in raised if f"| `{name}` | " not in text} == set()
    assert {kind for kind in OutcomeKind if f"| `{kind}` | " not in text} == set()
    assert {code for code in errors.FaultCode if f"| `{code}` | " not in text} == set()
    assert "| `InputError` | `invalid-input` | 2 |" in text


def test_reference_has_every_key_of_report_json(pages: ModuleType) -> None:
    text = pages.report_json()
    assert {field.name for field in dataclasses.fields(Report) if f"| `{field.name}` | " not in text} == set()


def test_api_page_has_every_member_of_trial() -> None:
    trial = FunctionTrial(Job({}, 1), ROOT, lambda _step, _metrics: None)
    offered = {name for name in dir(trial) if not name.startswith("_")}
    page = (ROOT / "docs" / "reference" / "python-api.md").read_text("utf-8")
    assert offered == set(re.findall(r"^\| `trial\.(\w+)", page, re.MULTILINE))
