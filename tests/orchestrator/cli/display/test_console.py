"""The console prints plain text: no control sequences, no markup, no passwords."""

import pytest
from rich.table import Table
from rich.text import Text

from orchestrator.cli.display import console

HOSTILE_TEXT = "\x1b[2J\x1b]0;owned\x07 \u202egnp.exe [red]x[/red] :smile: \r\ud800 http://ann:secret@host"
ESCAPED_TEXT = r"\x1b[2J\x1b]0;owned\x07 \u202egnp.exe [red]x[/red] :smile: \r\ud800 http://ann:***@host"


@pytest.fixture(autouse=True, params=["", "1"])
def consoles(request, monkeypatch):
    """Run the test with and without colours."""
    monkeypatch.setenv("FORCE_COLOR", request.param)
    console.out.cache_clear()
    console.err.cache_clear()
    yield
    console.out.cache_clear()
    console.err.cache_clear()


def test_console_escapes_lines(capsys) -> None:
    console.print_line(f"{HOSTILE_TEXT}\n{HOSTILE_TEXT}")
    console.print_error(HOSTILE_TEXT)
    assert capsys.readouterr() == (f"{ESCAPED_TEXT}\n{ESCAPED_TEXT}\n", f"{ESCAPED_TEXT}\n")


def test_console_escapes_tables(capsys) -> None:
    table = Table(title=HOSTILE_TEXT, title_style="", header_style="")
    table.add_column(HOSTILE_TEXT)
    table.add_row(Text(HOSTILE_TEXT))
    console.out().print(table)
    output = capsys.readouterr().out
    assert output.count(r"\u202egnp.exe") == 3
    assert not {"\u202e", "\x07"} & set(output)
