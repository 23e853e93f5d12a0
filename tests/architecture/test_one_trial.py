"""CONTRIBUTING's path of one trial, from `launch` to its first optimiser step, is the real one."""

import ast
import re

import pytest

from tests.architecture.source import ROOT, text

ROW = re.compile(r"^\| `([\w/]+\.py)` \| `(\w+)` \|", re.MULTILINE)


def steps_of_a_trial():
    """Return files and functions of both tables, those of the inline driver first."""
    table_rows = ROW.findall(text(ROOT / "CONTRIBUTING.md"))
    return table_rows[:9], table_rows[9:]


def test_path_has_nine_files_inline_and_eleven_on_ray():
    inline, ray = steps_of_a_trial()
    assert len(inline) == 9
    assert len(inline) - 1 + len(ray) == 11


@pytest.mark.parametrize(("path", "name"), [row for table in steps_of_a_trial() for row in table])
def test_functions_of_the_path_exist(path, name):
    nodes = ast.walk(ast.parse(text(ROOT / path)))
    assert name in {getattr(node, "name", None) for node in nodes}
