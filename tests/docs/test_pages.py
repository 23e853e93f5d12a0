"""The code of README and docs runs, in an empty folder for each page."""

import runpy
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import RUN_LANGUAGES, CodeBlock, blocks, pages
from tests.support.processes.commands import Shell, answer
from tests.support.processes.forked_pytest import pytest_in
from tests.support.processes.forks import Forked

PAGES = pages()
README = Path("README.md")
"""Page whose code equals that of the first tutorial, see `test_same_code`."""
MAX_SHARE_NOT_RUN = 0.2
"""Greatest share of blocks of code that a page may leave out because no test can run them."""
SHORT_TRAINING = {"train.steps": 2, "train.report_every": 2, "train.batch_size": 4, "train.warmup_steps": 0}
"""Settings of built-in training that make a launch short."""


def checked_blocks(page: Path) -> list[CodeBlock]:
    return [block for block in blocks(page) if block.language in RUN_LANGUAGES]


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_blocks_are_closed_and_have_a_language(page: Path) -> None:
    assert [block.place for block in blocks(page) if not block.language] == []


def test_few_blocks_are_not_run() -> None:
    code = [block for page in PAGES for block in checked_blocks(page)]
    left_out = [block.place for block in code if block.directive == "not run"]
    assert len(left_out) <= MAX_SHARE_NOT_RUN * len(code), left_out


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if page != README and checked_blocks(page)], ids=str)
def test_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    shell = Shell(tmp_path / "folder", tmp_path / "home")
    shell.folder.mkdir()
    shell.home.mkdir()
    for block in checked_blocks(page):
        if block.directive == "file":
            write_file(block, shell)
        elif block.directive == "added to":
            check_part(block, shell)
        elif block.directive != "not run":
            {"python": run_python, "sh": run_commands, "yaml": check_spec}[block.language](block, shell)


def write_file(block: CodeBlock, shell: Shell) -> None:
    file = shell.folder / block.argument
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(block.body, encoding="utf-8")
    if block.language == "yaml":
        assert_valid(block, shell, block.argument)


def check_spec(block: CodeBlock, shell: Shell) -> None:
    (shell.folder / "block.yaml").write_text(block.body, encoding="utf-8")
    assert_valid(block, shell, "block.yaml")


def check_part(block: CodeBlock, shell: Shell) -> None:
    """Check a part of a spec inside the spec to which it belongs; the file does not change."""
    spec = yaml.safe_load((shell.folder / block.argument).read_text("utf-8"))
    for key, value in yaml.safe_load(block.body).items():
        are_mappings = isinstance(spec.get(key), Mapping) and isinstance(value, Mapping)
        spec[key] = spec[key] | value if are_mappings else value
    (shell.folder / "block.yaml").write_text(yaml.safe_dump(spec, sort_keys=False), encoding="utf-8")
    assert_valid(block, shell, "block.yaml")


def assert_valid(block: CodeBlock, shell: Shell, file: str) -> None:
    result = shell.run("check", file)
    assert result.code == 0, f"{block.place}: {result.err}"


def run_python(block: CodeBlock, shell: Shell) -> None:
    file = shell.folder / "block.py"
    file.write_text(block.body, encoding="utf-8")
    result = answer(Forked(run_file, file, folder=shell.folder, variables=shell.environment))
    assert result.code == 0, f"{block.place}: {result.err}"


def run_file(file: Path) -> None:
    """Run a file as `python FILE` does."""
    sys.path.insert(0, str(Path.cwd()))
    sys.argv = [str(file)]
    runpy.run_path(str(file), run_name="__main__")


def run_commands(block: CodeBlock, shell: Shell) -> None:
    for line in block.body.splitlines():
        if not (words := shlex.split(line, comments=True)):
            continue
        program, *arguments = words
        target = arguments[arguments.index(">") + 1] if ">" in arguments else None
        if target is not None:
            arguments = arguments[: arguments.index(">")]
        if program == "pytest":
            code, out, err = pytest_in(
                shell.folder, ("-p", "no:cacheprovider", *arguments), shell.environment
            )
            assert code == 0, f"{block.place}: {out[-4000:]}{err}"
            continue
        if program == "python":
            result = answer(
                Forked(run_file, Path(arguments[0]), folder=shell.folder, variables=shell.environment)
            )
        else:
            assert program == "haltsweep", f"{block.place}: a test cannot run {line}"
            result = shell.run(*arguments, *shortening_options(arguments, shell))
        assert result.code == 0, f"{block.place}: {line}: {result.out[-2000:]}{result.err}"
        if target is not None:
            (shell.folder / target).write_text(result.out, encoding="utf-8")


def shortening_options(arguments: list[str], shell: Shell) -> list[str]:
    """Return further arguments that make a launch take seconds."""
    if arguments[0] in ("resume", "extend") and "--dry-run" not in arguments:
        return ["--driver", "inline"]
    if arguments[0] != "launch":
        return []
    spec: dict[str, Any] = yaml.safe_load((shell.folder / arguments[1]).read_text("utf-8"))
    overrides: dict[str, Any] = {}
    if search := spec.get("search"):
        overrides |= {"search.trials_per_arm": 1} | ({"search.repeats": 1} if "repeats" in search else {})
    if "trainable" not in spec:
        overrides |= {f"baseline.{name}": value for name, value in SHORT_TRAINING.items()}
    return [f"{name}={value}" for name, value in overrides.items()] + ["--driver", "inline"]
