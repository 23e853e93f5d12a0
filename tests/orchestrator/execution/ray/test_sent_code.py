"""What of a trainable is sent to other machines, and that they find it as the launching one does."""

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
    "travels_far/words.txt": "all of a package",
    "travels_light.py": "import travels_apart.other\nimport json\nimport sklearn\n",
    "travels_apart/deep/__init__.py": "",
    "travels_apart/deep/module.py": "import travels_not\nvalue = 1\n",
    "travels_apart/other.py": "import travels_far\n",
    "travels_apart/large.bin": "which nothing imports",
    "stays.py": "",
}
EXPECTED = ["travels_apart/deep", "travels_apart/other.py", "travels_far", "travels_light.py"]


@pytest.fixture
def folder(tmp_path):
    with importable_files(tmp_path, FILES):
        yield tmp_path


def test_what_is_imported_from_the_launching_folder_is_sent(folder):
    sent = code_to_send(["travels_far", "travels_light"], folder)
    assert list(sent) == EXPECTED
    assert sent == {name: str(folder / name) for name in EXPECTED}
    assert list(code_to_send(["travels_apart.other"], folder)) == EXPECTED


@pytest.mark.parametrize("module", ["sklearn.base", "is_not_there"])
def test_what_is_installed_or_missing_is_not(folder, module):
    assert code_to_send([module], folder) == {}


def test_what_is_elsewhere_is_not(folder, tmp_path_factory):
    assert not code_to_send(["travels_far"], tmp_path_factory.mktemp("elsewhere"))


def test_nothing_to_send_needs_no_environment_of_its_own():
    with runtime_environment({}) as environment:
        assert environment is None


def test_each_module_and_package_is_found_though_each_is_in_a_folder_of_its_own(
    folder, tmp_path_factory, monkeypatch
):
    """As Ray unpacks them; and in the same order, so that their digest is the same."""
    node = tmp_path_factory.mktemp("node") / "py_modules_files"
    with runtime_environment(code_to_send(["travels_far"], folder)) as environment:
        modules = [Path(each) for each in environment["py_modules"]]
        for number, module in enumerate(reversed(modules)):
            unpacked = node / f"{number}" / module.name
            unpacked.parent.mkdir(parents=True)
            (shutil.copytree if module.is_dir() else shutil.copyfile)(module, unpacked)
    assert not modules[-1].exists(), "the copy is gone"
    here = [str(each.relative_to(folder)) for each in source_files("travels_far")]
    assert here == sorted(name for name in FILES if name.endswith(".py") and name != "stays.py")
    monkeypatch.setattr(sys, "path", [str(each) for each in node.iterdir()])
    there = ["/".join(each.relative_to(node).parts[1:]) for each in source_files("travels_far")]
    assert there == here
    assert not (node / "0").joinpath("travels_apart", "large.bin").exists()
    assert list(node.rglob("words.txt"))
