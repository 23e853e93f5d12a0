"""The catalog finds files by name without importing them, and suggests the nearest name for unknown ones."""

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
def test_catalog_lists_all_files_except_private_ones(kind: catalog.Kind) -> None:
    files = {file.stem for file in (Path(trainables.__file__).parent / kind).glob("*.py")}
    assert set(catalog.names(kind)) == {name for name in files if not name.startswith("_")}


def test_unknown_name_error_suggests_and_lists_names() -> None:
    with pytest.raises(UnknownName, match=r"'listop'.*'listops'.*listops"):
        catalog.load("tasks", "listop")


@pytest.fixture
def extra_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Add a file to `trainables/models` that has `Config` and `Encoder`, and does not repeat its name."""
    (tmp_path / "extra_model.py").write_text(
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
    sys.modules.pop("trainables.models.extra_model", None)
    vars(trainables.models).pop("extra_model", None)


@pytest.mark.usefixtures("extra_model")
def test_built_in_model_has_the_name_of_its_file() -> None:
    config = catalog.config_class("models", "extra_model")
    assert config.model_validate({"name": "extra_model", "layers": 2}).model_dump()["name"] == "extra_model"
    with pytest.raises(ValidationError, match="'extra_model'"):
        config.model_validate({"name": "another"})


def test_listing_names_does_not_import_torch() -> None:
    code = (
        "import sys; from trainables import catalog as c; c.names('models'); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
