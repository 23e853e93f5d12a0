"""report.tex can be read by LaTeX: what is opened is closed, rows fit their columns, text is text."""

# ruff: noqa: RUF001 - letters that look like others are tried

import re
import shutil
import subprocess
from dataclasses import replace

import pytest

from orchestrator.report.figures import style
from orchestrator.report.figures.interval_figures import outcome_panels
from orchestrator.report.figures.panels import all_panels
from orchestrator.report.figures.style import render
from orchestrator.report.writers.latex import escape, latex_document
from orchestrator.report.writers.tables import all_tables
from orchestrator.report.writers.write import write_report_folder
from orchestrator.trials import OutcomeKind
from tests.orchestrator.report.studies import study
from tests.support.processes.commands import PATIENCE_S

HOSTILE = r"50% of $x_1 & \input{/etc/passwd} {[#^~<|>\"`'-"
TABULAR = re.compile(r"\\begin\{tabular\}\{@\{\}(.*?)@\{\}\}\n(.*?)\\end\{tabular\}", re.DOTALL)
WRAPPED = re.compile(r">\{[^}]*\}p\{[^}]*\}")
NAMES = [
    "a-rather-long-name_of_an_arm_" * 4,
    "größer-Łódź-“quoted”",
    "α-halt-β≤γ→∞ 中文 ✓",
    HOSTILE,
    "ǖ-минус",
]


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
        study([HOSTILE, "b"], 3, 0, thresholds=()),
        study(2, 0, 4, thresholds=()),
    ],
)
def test_document_is_well_formed_latex(made):
    report, details = made.report(), made.details()
    panels = list(all_panels(report, details))
    text = latex_document(report, panels)
    begun = read(text)
    assert begun.count("document") == 1
    parts = all_tables(report)
    assert begun.count("tabular") == len(parts)
    assert begun.count("figure") == len(panels)
    for (columns, body), grid in zip(TABULAR.findall(text), parts, strict=True):
        assert len(WRAPPED.sub("p", columns)) == len(grid.headers)
        lines = [line for line in body.splitlines() if line.endswith(r" \\")]
        assert len(lines) == len(grid.rows) + 1
        assert {len(re.findall(r"(?<!\\)&", line)) for line in lines} == {len(grid.headers) - 1}
        rules = [line for line in body.splitlines() if line.endswith("rule")]
        assert rules == [r"\toprule", r"\midrule", r"\bottomrule"]


def test_special_letters_are_escaped():
    shown = escape(HOSTILE)
    assert not unescaped(shown, "%$&#_^~")
    assert r"\input" not in shown
    assert escape("100% é … 中\x1b") == r"100\% é \ldots{} \texttt{U+4E2D}\textbackslash{}x1b"
    assert escape("Łódź š ő “β−1”") == r"Łódź š ő “\texttt{U+03B2}\texttt{U+2212}1”"
    assert escape("a-b--c [-0.1, -2] 4-5") == r"a-b{-}{-}c {[}$-$0.1, $-$2{]} 4-5"


def test_long_tables_are_continued():
    made = study(2, 0, 2, thresholds=())
    report = made.report()
    tallies = tuple(replace(report.tallies[0], arm=f"arm-{place}") for place in range(95))
    text = latex_document(replace(report, tallies=tallies), [])
    assert text.count("(continued)") == 2
    assert all(f"arm-{place} &" in text for place in range(95))


@pytest.mark.parametrize("kind", ["svg", "pdf", "png"])
def test_figures_are_reproducible(kind):
    made = study(2, 2, 0, thresholds=())
    first, again = (
        [render(outcome_panel, kind) for outcome_panel in outcome_panels(made.report())] for _ in range(2)
    )
    assert first == again
    assert len(first) == 2


@pytest.mark.slow
def test_document_includes_written_figures(tmp_path):
    made = study(2, 1, 0, thresholds=())
    write_report_folder(made.report(), tmp_path / "report", made.details(), figures="svg", latex=True)
    folder = tmp_path / "report" / "figures"
    named = re.findall(
        r"\\includegraphics\{figures/(.*?)\}", (tmp_path / "report" / "report.tex").read_text()
    )
    assert sorted(named) == sorted(path.name for path in folder.glob("*.pdf"))
    assert {path.stem for path in folder.glob("*.svg")} == {path.stem for path in folder.glob("*.pdf")}
    for path in folder.iterdir():
        assert path.read_bytes().startswith(b"%PDF" if path.suffix == ".pdf" else b"<?xml")


@pytest.mark.slow
@pytest.mark.parametrize("made", [study(NAMES, 2, 1, thresholds=(0.6,)), study(2, 0, 0, thresholds=())])
def test_the_document_is_compiled(made, tmp_path, monkeypatch):
    if shutil.which("pdflatex") is None:
        pytest.skip(
            "pdflatex is not installed: Debian has it in texlive-latex-recommended; the text is parsed"
        )
    # Fonts that a figure brings with it take a second each; figures with theirs are written above.
    monkeypatch.setitem(style.SETTINGS, "pdf.fonttype", 3)
    folder = tmp_path / "report"
    write_report_folder(made.report(), folder, made.details(), latex=True)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "report.tex"]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=PATIENCE_S, check=False)
    log = done.stdout.decode(errors="replace")
    assert done.returncode == 0, log[-3000:]
    assert (folder / "report.pdf").read_bytes().startswith(b"%PDF")
    assert "Missing character" not in log
    assert "Overfull \\hbox" not in log, [line for line in log.splitlines() if line.startswith("Overfull")]
