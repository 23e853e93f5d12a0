"""Models, tasks and spaces of other packages, by entry point and by dotted name, and their faults."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.errors import InputError
from orchestrator.execution.code_digests import code_parts
from orchestrator.search import space_catalog
from tests.support.numerics.distributions import SPEC, install_gru_kit, install_package
from tests.support.processes.in_process import Run
from tests.support.training_code.own_code import forgotten
from trainables import catalog
from trainables.custom.extensions import BadModule, UnknownName
from trainables.data.inventory import inspect_file
from trainables.data.store import open_split, split_path

WORKLOAD = "trainables.training:Training"


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
    assert "\ngru " in (output := haltsweep("models").out)
    assert output.count("[from gru-kit 0.1]") == 1
    assert "[from gru-kit 0.1]" in haltsweep("tasks").out
    assert haltsweep("spaces").out.count("[from gru-kit 0.1]") == 2


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
    with pytest.raises(BadModule, match=r"'gru'.*gru_kit\.gru .*gru-kit 0\.1"):
        catalog.load("models", "gru")
    pattern = r"trainables\.models\.transformer .*other\.transformer .*other-kit 0\.1"
    with pytest.raises(BadModule, match=pattern):
        catalog.load("models", "transformer")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nowhere_at_all\n", r"broken\.py:1: ModuleNotFoundError"),
        ("\n\nraise RuntimeError('one\\ntwo')\n", r"broken\.py:3: RuntimeError"),
        ("\n\nclass Config: ...\n", r"Config.*<class \'broken\.Config\'> .*py:3\)"),
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
    result = haltsweep("plan", str(spec), "search.spaces=[optimiser]")
    assert result.code == 2
    assert "spec.yaml:6: baseline.model.name: " in result.err
    assert "Traceback" not in result.err
    assert "'broken' of broken-kit 0.1" in haltsweep("models").out


def test_unknown_name_gets_a_suggestion(installed: Path) -> None:
    install_gru_kit(installed)
    with pytest.raises(UnknownName, match=r"'grus'.*'gru'"):
        catalog.load("models", "grus")
    with pytest.raises(UnknownName, match=r"'gru_kit\.grus'.*'gru_kit\.gru'"):
        catalog.load("models", "gru_kit.grus")
    with pytest.raises(UnknownName, match=r"'rates\.wid'.*'rates\.wide'"):
        space_catalog.load("rates.wid")


def test_workers_get_the_code_that_the_spec_names(installed: Path) -> None:
    install_gru_kit(installed)
    parts_before = code_parts(WORKLOAD, ["majority"], ["gru"])
    assert parts_before != code_parts(WORKLOAD, [], ["transformer"])
    with (installed / "gru_kit" / "__init__.py").open("a") as file:
        file.write("CHANGED = True\n")
    assert parts_before != code_parts(WORKLOAD, ["majority"], ["gru"])
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
