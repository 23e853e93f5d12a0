"""README, CONTRIBUTING, docs and experiments/README name only files, commands and targets that exist."""

import re
import tomllib

import pytest
import typer

from orchestrator.cli.main import app
from tests.architecture.source import ROOT, text, text_files
from tests.support.processes.commands import commands_by_name

DOCUMENTS = [path for path in text_files() if path.suffix == ".md"]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
PLACE = re.compile(
    r"(?:orchestrator|search_spaces|trainables|experiments|tests|\.ci)(?:/[\w.*-]+)*/?|Makefile|[A-Z]+\.md"
)
BLOCK = re.compile(r"^```([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def without_blocks(path):
    return BLOCK.sub("", text(path))


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_relative_links_have_a_target(document):
    targets = [link.partition("#")[0] for link in LINK.findall(without_blocks(document)) if "://" not in link]
    folder = (ROOT / document).parent
    assert not [target for target in targets if target and not (folder / target).exists()]


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_named_files_exist(document):
    """`x.py` stands for a file that the reader adds, so only its folder must exist."""
    named_places = {name for code in CODE.findall(without_blocks(document)) for name in PLACE.findall(code)}
    homes = {
        name.rpartition("/")[0] if name.rpartition("/")[2].lower().startswith("x.") else name
        for name in named_places
    }
    assert not [home for home in homes if not list(ROOT.glob(home.rstrip("/")))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_named_commands_exist(document):
    commands = commands_by_name(typer.main.get_command(app))
    for line in re.findall(r"(?<!-)(?<!from )haltsweep ((?:[a-z]+\b)[^`\n]*)", "\n".join(code_of(document))):
        first, first_two_words = line.split()[0], " ".join(line.split()[:2])
        verb = first_two_words if first_two_words in commands else first
        assert verb in commands, f"haltsweep {line}"
        known_options = {
            name for param in commands[verb].params for name in (*param.opts, *param.secondary_opts)
        }
        assert set(re.findall(r"--[a-z-]+", line)) <= known_options, f"haltsweep {line}"


def code_of(document):
    """Return all code of a document."""
    return [*CODE.findall(without_blocks(document)), *(body for _, body in BLOCK.findall(text(document)))]


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_named_make_targets_exist(document):
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"make ([a-z]+)", "\n".join(code_of(document)))) <= targets


def test_named_extras_exist():
    extras = tomllib.loads(text(ROOT / "pyproject.toml"))["project"]["optional-dependencies"]
    named_extras = {extra for path in text_files() for extra in re.findall(r"haltsweep\[(\w+)\]", text(path))}
    named_extras |= {extra for path in DOCUMENTS for extra in re.findall(r"'\.\[(\w+)\]'", text(path))}
    assert named_extras <= set(extras)
    assert {"flash", "postgres"} <= named_extras
