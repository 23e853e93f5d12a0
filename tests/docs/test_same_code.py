"""Pages show the files that the package ships or that other tests use."""

import tomllib
from pathlib import Path

import pytest

from tests.architecture.source import ROOT, text
from tests.docs.pages import RUN_LANGUAGES, blocks
from tests.support.numerics.distributions import PROJECT

README = Path("README.md")
FIRST_STUDY = Path("docs/tutorials/first-study.md")
OWN_CODE_PAGE = Path("docs/how-to/own-model-task-space.md")


def file_block(page: Path, file: str) -> str:
    (block,) = [block for block in blocks(page) if block.directive == "file" and block.argument == file]
    return block.body


def test_readme_has_the_code_of_the_first_tutorial() -> None:
    """Tests run the code of the first tutorial."""
    readme, tutorial = (
        [block for block in blocks(page) if block.language in RUN_LANGUAGES] for page in (README, FIRST_STUDY)
    )
    commands = "".join(block.body for block in tutorial if block.language == "sh").splitlines()
    for block in readme:
        if block.directive == "file":
            assert without_comments(block.body) == without_comments(file_block(FIRST_STUDY, block.argument))
        elif block.directive != "not run":
            assert set(block.body.splitlines()) <= set(commands)


def without_comments(code: str) -> list[str]:
    """Return the lines without comments at their ends."""
    return [line.partition(" #")[0].rstrip() for line in code.splitlines()]


def test_resuming_page_has_the_code_of_the_new_command() -> None:
    starter = text(ROOT / "orchestrator" / "starters" / "digits.py.txt")
    assert file_block(Path("docs/how-to/resume-retry-extend.md"), "digits.py") == starter


@pytest.mark.parametrize("name", ["gru", "majority", "rates"])
def test_package_page_has_the_tested_modules(name: str) -> None:
    assert file_block(OWN_CODE_PAGE, f"gru_kit/{name}.py") == (PROJECT / "gru_kit" / f"{name}.py").read_text(
        "utf-8"
    )


def test_package_page_has_the_tested_entry_points() -> None:
    (block,) = [block for block in blocks(OWN_CODE_PAGE) if block.language == "toml"]
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    assert tomllib.loads(block.body)["project"]["entry-points"] == project["entry-points"]


def test_readme_is_short_and_starts_like_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    from orchestrator.cli.main import app

    lines = text(ROOT / "README.md").splitlines()
    summary = tomllib.loads(text(ROOT / "pyproject.toml"))["project"]["description"]
    assert len(lines) <= 130
    assert lines[2] == f"{summary}."
    assert str(app.info.help).startswith(lines[2])


def test_changelog_starts_with_this_version_and_is_short() -> None:
    from orchestrator import __version__

    lines = text(ROOT / "CHANGELOG.md").splitlines()
    headings = [line for line in lines if line.startswith("## ")]
    assert headings[0] == f"## {__version__}"
