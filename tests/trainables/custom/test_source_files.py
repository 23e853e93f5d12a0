"""The source files of a trainable: a change of any of them can change trials."""

import sys

import pytest

from tests.support.training_code.own_code import importable_files
from trainables.custom.source_files import source_files

FILES = {
    "alone.py": "import json, os.path, trainables.protocol\nfrom missing import nothing\n",
    "trainables/__init__.py": "",
    "single.py": "import helper, queue, single\nfrom parts.near import number\nfrom whole import thing\n",
    "helper.py": "def f():\n    import deeper.still\n",
    "queue.py": "Python finds its own",
    "deeper/still.py": "from . import beside\nfrom .. import helper\n",
    "deeper/beside.py": "not Python at all",
    "deeper/unread.py": "",
    "parts/near.py": "",
    "parts/unread.py": "",
    "whole/__init__.py": "",
    "whole/inner/__init__.py": "",
    "whole/inner/thing.py": "from .. import inner\nfrom . import thing\nfrom outer import value\n",
    "whole/__pycache__/thing.cpython-311.pyc": "",
    "whole/notes.txt": "",
    "outer.py": "import whole.inner.thing\nimport again\nimport whole_too\n",
    "again/__init__.py": "from . import deep\nfrom whole import inner\n",
    "again/deep.py": "",
    "whole_too.py": "def broken(:",
}


@pytest.fixture
def folder(tmp_path):
    with importable_files(tmp_path, FILES):
        yield tmp_path


WHOLE_FILES = ["whole/__init__.py", "whole/inner/__init__.py", "whole/inner/thing.py"]
OUTER_FILES = ["again/__init__.py", "again/deep.py", "outer.py"]
STILL_FILES = ["deeper/beside.py", "deeper/still.py", "helper.py"]


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("alone", ["alone.py"]),
        (
            "single",
            sorted([*STILL_FILES, *WHOLE_FILES, *OUTER_FILES, "whole_too.py", "parts/near.py", "single.py"]),
        ),
        ("whole.inner.thing", sorted([*OUTER_FILES, *WHOLE_FILES, "whole_too.py"])),
        ("sys", []),
    ],
)
def test_source_files_are_the_module_and_its_local_imports(folder, module, expected):
    assert [str(source_file.relative_to(folder)) for source_file in source_files(module)] == expected


def test_imports_of_installed_modules_are_not_followed(folder, monkeypatch):
    assert source_files("pytest")
    installed = folder / "site-packages"
    installed.mkdir()
    for name in ("bought.py", "beside.py"):
        (installed / name).write_text("import beside\n")
    monkeypatch.setattr(sys, "path", [str(installed), *sys.path])
    assert source_files("bought") == [installed / "bought.py"]
