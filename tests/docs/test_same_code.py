"""Pages show the very files that the package ships or that other tests use."""

import tomllib
from pathlib import Path

import pytest

from tests.architecture.source import ROOT, text
from tests.docs.pages import RUN, blocks
from tests.support.numerics.distributions import PROJECT

README = Path("README.md")
FIRST_STUDY = Path("docs/tutorials/first-study.md")
OWN = Path("docs/how-to/own-model-task-space.md")


def shown(page: Path, file: str) -> str:
    (block,) = [each for each in blocks(page) if each.does == "file" and each.what == file]
    return block.body


def test_the_code_of_the_readme_is_that_of_the_first_tutorial() -> None:
    """Which is run."""
    readme, tutorial = (
        [each for each in blocks(page) if each.language in RUN] for page in (README, FIRST_STUDY)
    )
    commands = "".join(each.body for each in tutorial if each.language == "sh").splitlines()
    for block in readme:
        if block.does == "file":
            assert plain(block.body) == plain(shown(FIRST_STUDY, block.what))
        elif block.does != "not run":
            assert set(block.body.splitlines()) <= set(commands)


def plain(code: str) -> list[str]:
    """The lines without comments behind code."""
    return [line.partition(" #")[0].rstrip() for line in code.splitlines()]


def test_the_page_about_resuming_has_the_code_that_new_writes() -> None:
    starter = text(ROOT / "orchestrator" / "starters" / "digits.py.txt")
    assert shown(Path("docs/how-to/resume-retry-extend.md"), "digits.py") == starter


@pytest.mark.parametrize("name", ["gru", "majority", "rates"])
def test_the_modules_of_a_package_are_those_that_are_tested(name: str) -> None:
    assert shown(OWN, f"gru_kit/{name}.py") == (PROJECT / "gru_kit" / f"{name}.py").read_text("utf-8")


def test_the_entry_points_of_a_package_are_those_that_are_tested() -> None:
    (block,) = [each for each in blocks(OWN) if each.language == "toml"]
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    assert tomllib.loads(block.body)["project"]["entry-points"] == project["entry-points"]


def test_the_readme_is_short_and_begins_as_help_and_package_do(capsys: pytest.CaptureFixture[str]) -> None:
    from orchestrator.cli.main import app

    lines = text(ROOT / "README.md").splitlines()
    summary = tomllib.loads(text(ROOT / "pyproject.toml"))["project"]["description"]
    assert len(lines) <= 130
    assert lines[2] == f"{summary}."
    assert str(app.info.help).startswith(lines[2])


def test_the_changelog_begins_with_this_version_and_is_short() -> None:
    from orchestrator import __version__

    lines = text(ROOT / "CHANGELOG.md").splitlines()
    headings = [line for line in lines if line.startswith("## ")]
    assert headings[0] == f"## {__version__}"
