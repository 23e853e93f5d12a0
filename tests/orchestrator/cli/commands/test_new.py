"""`haltsweep new` writes specs that can be planned and overwrites no file."""

import re
from pathlib import Path

REPOSITORY = Path(__file__).parents[4]


def test_new_without_a_name_writes_the_quickstart(haltsweep):
    assert "quickstart" in haltsweep("new", "--list").out
    assert haltsweep("new").code == 0
    original = REPOSITORY / "experiments" / "quickstart.yaml"
    assert Path("quickstart.yaml").read_bytes() == original.read_bytes()


def test_new_own_writes_code_and_spec(haltsweep):
    assert haltsweep("new", "own").code == 0
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["digits.py", "digits.yaml"]


def test_new_overwrites_no_file(haltsweep):
    Path("digits.py").write_text("mine")
    assert haltsweep("new", "own").code == 2
    assert [path.name for path in Path.cwd().iterdir()] == ["digits.py"]
    assert Path("digits.py").read_text() == "mine"


def test_new_names_all_existing_files(haltsweep):
    assert haltsweep("new", "own").code == 0
    assert re.search(r"digits\.yaml .*digits\.py ", haltsweep("new", "own").err)
