"""`haltsweep new`: what it writes can be planned, and nothing is ever overwritten."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]


def test_every_spec_of_the_box_is_listed(haltsweep):
    listed = haltsweep("new", "--list")
    names = {line.split()[0] for line in listed.out.splitlines()}
    assert names == {path.stem for path in (ROOT / "experiments").glob("*.yaml")} | {"own"}
    assert not list(Path.cwd().iterdir())
    asked = [line[32:].strip() for line in listed.out.splitlines()]
    assert all(len(each) > 20 and each[0] not in ">|" for each in asked)


def test_without_a_name_it_is_the_quickstart(haltsweep):
    result = haltsweep("new")
    assert result.code == 0
    assert Path("quickstart.yaml").read_bytes() == (ROOT / "experiments" / "quickstart.yaml").read_bytes()
    assert "haltsweep plan quickstart.yaml" in result.out


def test_own_code_comes_with_its_spec(haltsweep):
    assert haltsweep("new", "own").code == 0
    assert sorted(path.name for path in Path.cwd().iterdir()) == ["digits.py", "digits.yaml"]


@pytest.mark.parametrize("name", ["digits.py", "digits.yaml"])
def test_nothing_is_overwritten(haltsweep, name):
    Path(name).write_text("mine")
    result = haltsweep("new", "own")
    assert result.code == 2
    assert f"{name} exists" in result.err
    assert [path.name for path in Path.cwd().iterdir()] == [name]
    assert Path(name).read_text() == "mine"


def test_an_unknown_name_gets_the_nearest(haltsweep):
    result = haltsweep("new", "quickstrat")
    assert result.code == 2
    assert "Did you mean 'quickstart'?" in result.err
    assert not list(Path.cwd().iterdir())


@pytest.mark.parametrize(("first", "second"), [("own", "digits"), ("digits", "own")])
def test_two_examples_of_one_name_do_not_meet_in_one_directory(haltsweep, first, second):
    assert haltsweep("new", first).code == 0
    before = {path.name: path.read_text() for path in Path.cwd().iterdir()}
    result = haltsweep("new", second)
    assert (result.code, result.out) == (2, "")
    assert "digits.yaml exists" in result.err
    assert {path.name: path.read_text() for path in Path.cwd().iterdir()} == before
