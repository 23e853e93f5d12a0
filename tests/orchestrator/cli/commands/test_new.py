"""`haltsweep new` writes specs that can be planned and overwrites no file."""

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[4]


def test_list_shows_every_built_in_spec(haltsweep):
    result = haltsweep("new", "--list")
    names = {line.split()[0] for line in result.out.splitlines()}
    assert names == {path.stem for path in (REPOSITORY / "experiments").glob("*.yaml")} | {"own"}
    assert not list(Path.cwd().iterdir())
    questions = [line[32:].strip() for line in result.out.splitlines()]
    assert all(len(question) > 20 and question[0] not in ">|" for question in questions)


def test_new_without_a_name_writes_the_quickstart(haltsweep):
    result = haltsweep("new")
    assert result.code == 0
    assert (
        Path("quickstart.yaml").read_bytes() == (REPOSITORY / "experiments" / "quickstart.yaml").read_bytes()
    )
    assert "haltsweep plan quickstart.yaml" in result.out


def test_new_own_writes_code_and_spec(haltsweep):
    assert haltsweep("new", "own").code == 0
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["digits.py", "digits.yaml"]


@pytest.mark.parametrize("name", ["digits.py", "digits.yaml"])
def test_new_overwrites_no_file(haltsweep, name):
    Path(name).write_text("mine")
    result = haltsweep("new", "own")
    assert result.code == 2
    assert f"{name} exists" in result.err
    assert [path.name for path in Path.cwd().iterdir()] == [name]
    assert Path(name).read_text() == "mine"
