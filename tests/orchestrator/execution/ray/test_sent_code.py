"""The code of a custom trainable is sent to other machines, which find the same source files."""

import shutil
import sys
from pathlib import Path

import pytest

from orchestrator.execution.ray.sent_code import code_to_send, runtime_environment
from tests.support.training_code.own_code import importable_files
from trainables.custom.source_files import source_files

FILES = {
    "travels_far/__init__.py": "from .inner import value\nimport travels_light\n",
    "travels_far/inner.py": "from travels_apart.deep.module import value\n",
    "travels_far/words.txt": "part of a package",
    "travels_light.py": "import travels_apart.other\nimport json\nimport sklearn\n",
    "travels_apart/deep/__init__.py": "",
    "travels_apart/deep/module.py": "import travels_not\nvalue = 1\n",
    "travels_apart/other.py": "import travels_far\n",
    "travels_apart/large.bin": "not imported",
    "stays.py": "",
}
EXPECTED = ["travels_apart/deep", "travels_apart/other.py", "travels_far", "travels_light.py"]


@pytest.fixture
def folder(tmp_path):
    with importable_files(tmp_path, FILES):
        yield tmp_path


def test_modules_of_the_launch_folder_are_sent(folder):
    sent = code_to_send(["travels_far", "travels_light"], folder)
    assert list(sent) == EXPECTED
    assert sent == {name: str(folder / name) for name in EXPECTED}
    assert list(code_to_send(["travels_apart.other"], folder)) == EXPECTED


@pytest.mark.parametrize("module", ["sklearn.base", "is_not_there"])
def test_installed_missing_and_outside_modules_are_not_sent(folder, module):
    assert code_to_send([module], folder) == {}
    assert not code_to_send(["travels_far"], folder / "elsewhere")


def test_sent_modules_in_separate_folders_are_found(folder, tmp_path_factory, monkeypatch):
    """Unpack modules as Ray does, in an order that keeps the digest."""
    node = tmp_path_factory.mktemp("node") / "py_modules_files"
    with runtime_environment(code_to_send(["travels_far"], folder)) as environment:
        modules = [Path(module_path) for module_path in environment["py_modules"]]
        for number, module in enumerate(reversed(modules)):
            unpacked = node / f"{number}" / module.name
            unpacked.parent.mkdir(parents=True)
            (shutil.copytree if module.is_dir() else shutil.copyfile)(module, unpacked)
    assert not modules[-1].exists(), "the copy must be deleted"
    local_files = [str(path.relative_to(folder)) for path in source_files("travels_far")]
    assert local_files == sorted(name for name in FILES if name.endswith(".py") and name != "stays.py")
    monkeypatch.setattr(sys, "path", [str(path) for path in node.iterdir()])
    node_files = ["/".join(path.relative_to(node).parts[1:]) for path in source_files("travels_far")]
    assert node_files == local_files
    assert not (node / "0").joinpath("travels_apart", "large.bin").exists()
    assert list(node.rglob("words.txt"))
