"""Models, tasks and spaces of other packages, by entry point and by dotted name, and their faults."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.errors import InputError
from orchestrator.execution.code_digests import code_parts
from orchestrator.search import space_catalog
from orchestrator.spec.schema import DOTTED_NAME_SCHEMA, json_schema
from tests.support.numerics.distributions import SPEC, install_gru_kit, install_package
from tests.support.processes.in_process import Run
from tests.support.training_code.own_code import forgotten
from trainables import catalog
from trainables.custom.extensions import BadModule, UnknownName
from trainables.data.inventory import inspect_file
from trainables.data.store import open_split, split_path

WORKLOAD = "trainables.training:Training"
EMPTY_MODEL = "from trainables.settings import ModelSettings\nclass Config(ModelSettings): ...\n"


@pytest.fixture(autouse=True)
def _restore_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restore the import path and forget imported modules after a test."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    with forgotten(tmp_path):
        yield


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder on the import path."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return folder


def test_entry_points_are_listed_with_their_origin(haltsweep: Run, installed: Path) -> None:
    install_gru_kit(installed)
    assert "\ngru " in (shown := haltsweep("models").out)
    assert "[from gru-kit 0.1]" in shown
    assert shown.count("[from ") == 1
    assert "[from gru-kit 0.1]" in haltsweep("tasks").out
    assert haltsweep("spaces").out.count("[from gru-kit 0.1]") == 2


def test_entry_point_is_shown_with_file_and_fields(haltsweep: Run, installed: Path) -> None:
    install_gru_kit(installed)
    assert "site/gru_kit/gru.py\n" in haltsweep("models", "gru").out
    assert "5 to 9" in haltsweep("tasks", "majority").out
    assert "train.lr" in haltsweep("spaces", "rates.wide").out
    found = json.loads(haltsweep("models", "gru_kit.gru", "--json").out)
    assert found["gru_kit.gru"]["properties"]["name"]["const"] == "gru_kit.gru"


def test_settings_have_the_names_of_the_spec(installed: Path) -> None:
    install_gru_kit(installed)
    for name in ("gru", "gru_kit.gru"):
        config = catalog.config_class("models", name)
        assert config.model_validate({"name": name, "layers": 2}).model_dump()["name"] == name
        assert catalog.config_class("models", name) is config
    assert catalog.config_class("models", "trainables.models.transformer")().layers == 4


def test_module_of_the_current_folder_needs_no_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_gru_kit(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert catalog.load("models", "gru_kit.gru").__name__ == "gru_kit.gru"
    assert set(space_catalog.load("gru_kit.rates").paths) == {"train.lr", "model.layers"}
    assert space_catalog.load("gru_kit.rates.wide").paths == ("train.lr",)


def test_ambiguous_name_is_refused_with_both_origins(installed: Path) -> None:
    install_gru_kit(installed)
    project_memory = {"models": {"gru": "other.gru", "transformer": "other.transformer"}}
    install_package(installed, "other-kit", project_memory)
    with pytest.raises(BadModule, match=r"'gru'.*gru_kit\.gru of gru-kit 0\.1"):
        catalog.load("models", "gru")
    both = r"trainables\.models\.transformer .*other\.transformer of other-kit 0\.1"
    with pytest.raises(BadModule, match=both):
        catalog.load("models", "transformer")
    install_package(installed, "space-kit", {"spaces": {"halting": "other.halting"}})
    sys.path.append(str(installed / "nothing"))  # a change of the path clears the cache
    with pytest.raises(BadModule, match=r"search_spaces\.halting .*other\.halting"):
        space_catalog.load("halting")


@pytest.mark.parametrize("command", ["check", "plan", "launch"])
def test_name_of_a_package_and_of_a_built_in_is_refused_by_line(
    installed: Path, haltsweep: Run, tmp_path: Path, command: str
) -> None:
    install_gru_kit(installed)
    entry_points = {"models": {"universal": "gru_kit.gru"}, "tasks": {"listops": "gru_kit.majority"}}
    install_package(installed, "other-kit", entry_points | {"spaces": {"halting": "gru_kit.rates"}})
    (tmp_path / "both.yaml").write_text(
        "name: both\nquestion: Which one?\nbaseline:\n  task: {name: listops}\n  model: {name: universal}\n"
        "  train: {steps: 10, batch_size: 2}\narms:\n  one: {why: a try, set: {model.max_layers: 3}}\n"
        "search: {spaces: [halting], trials_per_arm: 2, objectives: [{metric: valid/accuracy, goal: max}]}\n"
    )
    result = haltsweep(command, str(tmp_path / "both.yaml"))
    assert result.code == 2, result
    messages = [line.rpartition("both.yaml:")[2].split(", got")[0] for line in result.err.splitlines()]
    assert messages == ["9: search.spaces[0]: the search space 'halting' must have a single definition"]
    without = (
        (tmp_path / "both.yaml")
        .read_text()
        .replace("spaces: [halting]", "also: {train.lr: {float: [1.0e-4, 1]}}")
    )
    (tmp_path / "both.yaml").write_text(without)
    result = haltsweep(command, str(tmp_path / "both.yaml"))
    messages = [line.rpartition("both.yaml:")[2].split(", got")[0] for line in result.err.splitlines()]
    assert messages == [
        "4: baseline.task.name: the task 'listops' must have a single definition",
        "5: baseline.model.name: the model 'universal' must have a single definition",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nowhere_at_all\n", r"broken\.py:1: ModuleNotFoundError"),
        ("x = 1\ny = (\n", r"broken\.py:2: SyntaxError"),
        ("\n\nraise RuntimeError('one\\ntwo')\n", r"broken\.py:3: RuntimeError"),
        ("raise SystemExit(3)\n", r"broken\.py:1: SystemExit: 3"),
        ("", r"Config.*py:1\)"),
        ("\n\nclass Config: ...\n", r"Config.*<class \'broken\.Config\'> .*py:3\)"),
        (EMPTY_MODEL, "Encoder"),
    ],
)
def test_unusable_module_is_reported_with_file_and_line(
    installed: Path, haltsweep: Run, text: str, message: str
) -> None:
    install_package(installed, "broken-kit", {"models": {"broken": "broken"}}, {"broken.py": text})
    with pytest.raises(BadModule, match=message):
        catalog.load("models", "broken")
    spec = installed / "spec.yaml"
    spec.write_text(SPEC.read_text().replace("majority}", "listops}").replace("gru,", "broken,"))
    answer = haltsweep("plan", str(spec), "search.spaces=[optimiser]")
    assert answer.code == 2
    assert "spec.yaml:6: baseline.model.name: " in answer.err
    assert "Traceback" not in answer.err
    assert "'broken' of broken-kit 0.1" in haltsweep("models").out


def test_incomplete_tasks_and_spaces_are_refused(installed: Path) -> None:
    files = {"half/__init__.py": "", "half/task.py": "VERSION = 'one'\n", "half/space.py": "published = 1\n"}
    files["half/task.py"] += "from trainables.settings import Settings\nclass Config(Settings): ...\n"
    install_package(installed, "half", {}, files)
    with pytest.raises(BadModule, match=r"'half\.task'.*VERSION.*'one'"):
        catalog.load("tasks", "half.task")
    with pytest.raises(BadModule, match=r"'half\.space'.*published.* 1 \(.*:1"):
        space_catalog.load("half.space")


def test_unknown_name_gets_a_suggestion(installed: Path) -> None:
    install_gru_kit(installed)
    with pytest.raises(UnknownName, match=r"'grus'.*'gru'"):
        catalog.load("models", "grus")
    with pytest.raises(UnknownName, match=r"'gru_kit\.grus'.*'gru_kit\.gru'"):
        catalog.load("models", "gru_kit.grus")
    with pytest.raises(UnknownName, match=r"no_kit\.gru"):
        catalog.load("models", "no_kit.gru")
    with pytest.raises(UnknownName, match=r"'rates\.wid'.*'rates\.wide'"):
        space_catalog.load("rates.wid")
    with pytest.raises(UnknownName, match=r"'gru_kit\.rate'.*'gru_kit\.rates'"):
        space_catalog.load("gru_kit.rate")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("alone", r"alone\.py.*mine\.alone"),
        ("alone.py", "alone$"),
        ("kit/gru.py", r"'kit/gru\.py'.*'kit\.gru'"),
        ("kit.gru.Encoder", r"kit\.gru"),
    ],
)
def test_file_or_class_in_place_of_a_module_suggests_the_module(
    installed: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.chdir(installed)
    (installed / "kit").mkdir()
    for each in ("alone.py", "kit/gru.py"):
        (installed / each).write_text(EMPTY_MODEL)
    with pytest.raises(UnknownName, match=message):
        catalog.load("models", name)


def test_workers_get_the_code_that_the_spec_names(installed: Path) -> None:
    install_gru_kit(installed)
    before = code_parts(WORKLOAD, ["majority"], ["gru"])
    assert before != code_parts(WORKLOAD, [], ["transformer"])
    with (installed / "gru_kit" / "__init__.py").open("a") as file:
        file.write("CHANGED = True\n")
    assert before != code_parts(WORKLOAD, ["majority"], ["gru"])
    with pytest.raises(InputError):
        code_parts(WORKLOAD, [], ["nowhere"])


def test_data_of_an_unimportable_task_is_not_removed(installed: Path, tmp_path: Path) -> None:
    install_gru_kit(installed)
    config = catalog.config_class("tasks", "gru_kit.majority")()
    assert len(open_split(config, "test", tmp_path)) == 67
    path = split_path(config, "test", tmp_path)
    assert inspect_file(path).verdict == "whole"
    for name in ("gru_kit.majority", "gru_kit"):
        sys.modules.pop(name)  # monkeypatch would restore these modules at its end
    (installed / "gru_kit" / "majority.py").write_text("import nowhere_at_all\n")
    entry = inspect_file(path)
    assert entry.verdict == "unknown"
    assert "nowhere_at_all" in entry.reason


def test_schema_lists_installed_names_and_accepts_modules(installed: Path) -> None:
    install_gru_kit(installed)
    shown = json.dumps(json_schema())
    assert '"gru", "gutlb"' in shown
    assert '"rates", "rates.wide"' in shown
    assert shown.count(json.dumps(DOTTED_NAME_SCHEMA)) >= 3  # of a model, a task and a space
