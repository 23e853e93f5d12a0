"""Files are found by name, without importing them, and unknown names are answered with the nearest."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import ValidationError

import trainables.models
from trainables import catalog
from trainables.custom.extensions import UnknownName


@pytest.mark.parametrize("kind", ["models", "tasks"])
def test_every_file_is_listed_and_private_ones_are_not(kind: catalog.Kind) -> None:
    files = {file.stem for file in (Path(trainables.__file__).parent / kind).glob("*.py")}
    assert set(catalog.names(kind)) == {name for name in files if not name.startswith("_")}


def test_a_known_name_loads_its_file() -> None:
    assert catalog.load("tasks", "listops").__name__ == "trainables.tasks.listops"


def test_an_unknown_name_is_answered_with_the_nearest_and_all() -> None:
    with pytest.raises(
        UnknownName, match=r"no task named 'listop'\. Did you mean 'listops'\? Known: .*listops"
    ):
        catalog.load("tasks", "listop")


def test_a_name_like_no_other_gets_the_list_alone() -> None:
    with pytest.raises(UnknownName, match=r"no task named 'xyzzy'\. Known: "):
        catalog.load("tasks", "xyzzy")


def test_private_files_cannot_be_asked_for() -> None:
    with pytest.raises(UnknownName, match="no model named '_universal'"):
        catalog.load("models", "_universal")


@pytest.fixture
def one_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A file of `trainables/models` that has `Config` and `Encoder`, and does not say its name again."""
    (tmp_path / "one_more.py").write_text(
        "from torch import nn\nfrom trainables.settings import ModelSettings\n"
        "class Config(ModelSettings):\n    layers: int = 1\n"
        "class Encoder(nn.Module): ...\n"
    )
    folders = [*trainables.models.__path__, str(tmp_path)]
    monkeypatch.setattr(trainables.models, "__path__", folders)
    monkeypatch.setattr(trainables.models.__spec__, "submodule_search_locations", folders)
    catalog._files.cache_clear()
    yield
    monkeypatch.undo()
    catalog._files.cache_clear()
    sys.modules.pop("trainables.models.one_more", None)
    vars(trainables.models).pop("one_more", None)


@pytest.mark.usefixtures("one_more")
def test_a_model_of_the_box_is_called_as_its_file_is() -> None:
    config = catalog.config_class("models", "one_more")
    assert config.model_validate({"name": "one_more", "layers": 2}).model_dump()["name"] == "one_more"
    with pytest.raises(ValidationError, match="Input should be 'one_more'"):
        config.model_validate({"name": "another"})


def test_listing_imports_nothing_heavy() -> None:
    code = (
        "import sys; from trainables import catalog as c; c.names('models'); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
