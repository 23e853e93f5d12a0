"""report.tex is well-formed LaTeX: closed environments, matching columns and escaped text."""

# ruff: noqa: RUF001 - the tests need letters that look like others

import re
import shutil
import subprocess

import pytest

from orchestrator.report.figures import style
from orchestrator.report.figures.panels import all_panels
from orchestrator.report.writers.latex import escape, latex_document
from orchestrator.report.writers.tables import all_tables
from orchestrator.report.writers.write import write_report_folder
from orchestrator.trials import OutcomeKind
from tests.orchestrator.report.studies import make_study
from tests.support.processes.commands import PATIENCE_S

HOSTILE_TEXT = r"50% of $x_1 & \input{/etc/passwd} {[#^~<|>\"`'-"
TABULAR = re.compile(r"\\begin\{tabular\}\{@\{\}(.*?)@\{\}\}\n(.*?)\\end\{tabular\}", re.DOTALL)
WRAPPED_COLUMN = re.compile(r">\{[^}]*\}p\{[^}]*\}")
ARM_NAMES = [
    "a-rather-long-name_of_an_arm_" * 4,
    "größer-Łódź-“quoted”",
    "α-halt-β≤γ→∞ 中文 ✓",
    HOSTILE_TEXT,
    "ǖ-минус",
    "€½ℋ⅓∬ŉ",
]


def parse_environments(text):
    """Return the environments of a document and require balanced braces."""
    assert text.isprintable() or set(text) - {character for character in text if character.isprintable()} == {
        "\n"
    }
    depth, open_environments, environments, position = 0, [], [], 0
    while position < len(text):
        if text[position] == "\\":
            if match := re.match(r"\\(begin|end)\{(\w+)\}", text[position:]):
                if match[1] == "begin":
                    environments.append(match[2])
                    open_environments.append((match[2], depth))
                else:
                    assert open_environments.pop() == (match[2], depth), (
                        f"{match[2]} ends where it did not begin"
                    )
                position += len(match[0])
                continue
            position += 2
            continue
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        assert depth >= 0
        position += 1
    assert (depth, open_environments) == (0, [])
    return environments


def find_unescaped(text, signs):
    return re.search(rf"(?<!\\)[{signs}]", text)


@pytest.mark.parametrize(
    "document_study",
    [
        make_study(
            3, 3, 6, outcome_of=lambda arm, _: OutcomeKind.DIVERGED if arm == 1 else OutcomeKind.FINISHED
        ),
        make_study([HOSTILE_TEXT, "b"], 3, 0, thresholds=()),
    ],
)
def test_document_is_well_formed_latex(document_study):
    report, details = document_study.report(), document_study.details()
    panels = list(all_panels(report, details))
    text = latex_document(report, panels)
    environments = parse_environments(text)
    assert environments.count("document") == 1
    tables = all_tables(report)
    assert environments.count("tabular") == len(tables)
    assert environments.count("figure") == len(panels)
    for (columns, body), table in zip(TABULAR.findall(text), tables, strict=True):
        assert len(WRAPPED_COLUMN.sub("p", columns)) == len(table.headers)
        lines = [line for line in body.splitlines() if line.endswith(r" \\")]
        assert len(lines) == len(table.rows) + 1
        assert {len(re.findall(r"(?<!\\)&", line)) for line in lines} == {len(table.headers) - 1}
        rules = [line for line in body.splitlines() if line.endswith("rule")]
        assert rules == [r"\toprule", r"\midrule", r"\bottomrule"]


def test_special_letters_are_escaped():
    escaped = escape(HOSTILE_TEXT)
    assert not find_unescaped(escaped, "%$&#_^~")
    assert r"\input" not in escaped
    assert escape("100% é … 中\x1b") == r"100\% \'e {\textellipsis} \texttt{U+4E2D}{\textbackslash}x1b"
    assert escape("Łódź š ő “β−1”") == (
        r"{\L}\'od\'z \v{s} \H{o} {\textquotedblleft}\ensuremath{\beta}\ensuremath{-}1{\textquotedblright}"
    )


@pytest.mark.slow
def test_pdflatex_compiles_the_document(tmp_path, monkeypatch):
    if shutil.which("pdflatex") is None:
        pytest.skip(
            "pdflatex is not installed: Debian has it in texlive-latex-recommended; the text is parsed"
        )
    # Type 3 fonts save one second per figure.
    monkeypatch.setitem(style.MATPLOTLIB_SETTINGS, "pdf.fonttype", 3)
    document_study, folder = make_study(ARM_NAMES, 2, 1, thresholds=(0.6,)), tmp_path / "report"
    write_report_folder(document_study.report(), folder, document_study.details(), latex=True)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "report.tex"]
    process = subprocess.run(command, cwd=folder, capture_output=True, timeout=PATIENCE_S, check=False)
    log = process.stdout.decode(errors="replace")
    assert process.returncode == 0, log[-3000:]
    assert (folder / "report.pdf").read_bytes().startswith(b"%PDF")
    assert "Missing character" not in log
    assert "Overfull \\hbox" not in log, [line for line in log.splitlines() if line.startswith("Overfull")]
