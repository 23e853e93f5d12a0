"""report.tex can be read by LaTeX: what is opened is closed, rows fit their columns, text is text."""

import re
from dataclasses import replace

import pytest

from orchestrator.report.figures import outcome_panels
from orchestrator.report.latex import document, escaped
from orchestrator.report.panels import all_panels
from orchestrator.report.style import rendered
from orchestrator.report.tables import grids
from orchestrator.report.write import write
from orchestrator.trials import OutcomeKind
from tests.orchestrator.report.studies import study

HOSTILE = r"50% of $x_1 & \input{/etc/passwd} {[#^~<|>\"`'-"
TABULAR = re.compile(r"\\begin\{tabular\}\{@\{\}(.*?)@\{\}\}\n(.*?)\\end\{tabular\}", re.DOTALL)
WRAPPED = re.compile(r"p\{[^}]*\}")


def read(text):
    """Environments, and what stands open, as TeX's own reader counts braces."""
    assert text.isprintable() or set(text) - {one for one in text if one.isprintable()} == {"\n"}
    depth, opened, begun, place = 0, [], [], 0
    while place < len(text):
        if text[place] == "\\":
            if found := re.match(r"\\(begin|end)\{(\w+)\}", text[place:]):
                if found[1] == "begin":
                    begun.append(found[2])
                    opened.append((found[2], depth))
                else:
                    assert opened.pop() == (found[2], depth), f"{found[2]} ends where it did not begin"
                place += len(found[0])
                continue
            place += 2
            continue
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        assert depth >= 0
        place += 1
    assert (depth, opened) == (0, [])
    return begun


def unescaped(text, signs):
    return re.search(rf"(?<!\\)[{signs}]", text)


@pytest.mark.parametrize(
    "made",
    [
        study(3, 3, 6, fate=lambda arm, _: OutcomeKind.DIVERGED if arm == 1 else OutcomeKind.FINISHED),
        study([HOSTILE, "b"], 3, 0, readings=()),
        study(2, 0, 4, readings=()),
    ],
)
def test_the_document_can_be_read(made):
    report, details = made.report(), made.details()
    panels = list(all_panels(report, details))
    text = document(report, panels)
    begun = read(text)
    assert begun.count("document") == 1
    assert begun.count("tabular") == len(grids(report))
    assert begun.count("figure") == len(panels)
    for (columns, body), grid in zip(TABULAR.findall(text), grids(report), strict=True):
        assert len(WRAPPED.sub("p", columns)) == len(grid.headers)
        lines = [line for line in body.splitlines() if line.endswith(r" \\")]
        assert len(lines) == len(grid.rows) + 1
        assert {len(re.findall(r"(?<!\\)&", line)) for line in lines} == {len(grid.headers) - 1}
        rules = [line for line in body.splitlines() if line.endswith("rule")]
        assert rules == [r"\toprule", r"\midrule", r"\bottomrule"]


def test_a_text_is_no_command():
    shown = escaped(HOSTILE)
    assert not unescaped(shown, "%$&#_^~")
    assert r"\input" not in shown
    assert escaped("100% é … 中\x1b") == r"100\% é \ldots{} \texttt{U+4E2D}\textbackslash{}x1b"


def test_a_long_table_goes_on_in_another():
    made = study(2, 0, 2, readings=())
    report = made.report()
    tallies = tuple(replace(report.tallies[0], arm=f"arm-{place}") for place in range(95))
    text = document(replace(report, tallies=tallies), [])
    assert text.count("(continued)") == 2
    assert all(f"arm{{-}}{place} &" in text for place in range(95))


@pytest.mark.parametrize("kind", ["svg", "pdf", "png"])
def test_a_figure_has_the_same_bytes_again(kind):
    made = study(2, 2, 0, readings=())
    first, again = ([rendered(each, kind) for each in outcome_panels(made.report())] for _ in range(2))
    assert first == again
    assert len(first) == 2


@pytest.mark.slow
def test_figures_are_files_that_the_document_names(tmp_path):
    made = study(2, 1, 2, readings=())
    write(made.report(), tmp_path / "report", made.details(), figures="svg", latex=True)
    folder = tmp_path / "report" / "figures"
    named = re.findall(
        r"\\includegraphics\{figures/(.*?)\}", (tmp_path / "report" / "report.tex").read_text()
    )
    assert sorted(named) == sorted(path.name for path in folder.glob("*.pdf"))
    assert {path.stem for path in folder.glob("*.svg")} == {path.stem for path in folder.glob("*.pdf")}
    for path in folder.iterdir():
        assert path.read_bytes().startswith(b"%PDF" if path.suffix == ".pdf" else b"<?xml")
