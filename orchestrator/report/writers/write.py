"""Write a report into a temporary folder and rename it, so that readers see only complete reports."""

import contextlib
import errno
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from orchestrator.files.file_digests import write_manifest
from orchestrator.report.caveats.notes import notes
from orchestrator.report.caveats.warning_texts import warning_texts
from orchestrator.report.comparisons.answer_summary import answer_summary
from orchestrator.report.figures.interval_figures import metric_panels, outcome_panels
from orchestrator.report.figures.panels import all_panels
from orchestrator.report.figures.style import FileFormat, Panel, render_panel
from orchestrator.report.results.contexts import split_by_context
from orchestrator.report.results.details import Details
from orchestrator.report.results.types import Report
from orchestrator.report.writers.csv_file import as_csv
from orchestrator.report.writers.first_arms import limit_arms
from orchestrator.report.writers.json_file import as_json
from orchestrator.report.writers.page import html_page
from orchestrator.report.writers.page_sections import arm_reasons
from orchestrator.report.writers.tables import all_tables, as_markdown
from search_spaces.wording import markdown_line, markdown_text, one_line


def write_report_folder(
    report: Report,
    folder: Path,
    details: Details | None = None,
    *,
    figures: FileFormat | None = None,
    latex: bool = False,
) -> Path:
    """Replace `folder` by report.md, report.html, report.csv, report.json and pictures.

    Args:
        report: The report.
        folder: Folder of the report.
        details: Further content of the page.
        figures: File type in which every figure of the page is written into the subfolder `figures`.
        latex: Whether report.tex and its figures as PDF are written.

    Returns:
        The path of report.md.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    new_folder = folder.with_name(f".{folder.name}-{uuid.uuid4().hex[:8]}")
    new_folder.mkdir()  # has the permissions of the umask; a temporary folder would be private
    try:
        shown_report, _ = limit_arms(report, None)
        pictures = [*outcome_panels(shown_report), *metric_panels(shown_report)]
        for panel in pictures:
            (new_folder / f"{panel.name}.png").write_bytes(render_panel(panel, "png"))
        (new_folder / "report.md").write_text(as_markdown_report(report, pictures, details), encoding="utf-8")
        (new_folder / "report.csv").write_text(as_csv(report), encoding="utf-8")
        (new_folder / "report.json").write_text(as_json(report, details), encoding="utf-8")
        (new_folder / "report.html").write_text(html_page(report, details), encoding="utf-8")
        panels = [*all_panels(report, details)] if figures or latex else []
        if figures:
            _write_figures(panels, figures, new_folder / "figures")
        if latex and figures != "pdf":
            _write_figures(panels, "pdf", new_folder / "figures")
        if latex:
            from orchestrator.report.writers.latex import latex_document

            (new_folder / "report.tex").write_text(latex_document(report, panels), encoding="utf-8")
        write_manifest(new_folder, sorted(path for path in new_folder.rglob("*") if path.is_file()))
        _replace_folder(new_folder, folder)
    except BaseException:
        shutil.rmtree(new_folder, ignore_errors=True)
        raise
    return folder / "report.md"


def _write_figures(panels: Sequence[Panel], kind: FileFormat, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for panel in panels:
        (folder / f"{panel.name}.{kind}").write_bytes(render_panel(panel, kind))


def _replace_folder(new_folder: Path, folder: Path) -> None:
    """Make `new_folder` the report folder. If several processes do so at once, the last one remains."""
    while True:
        old_folder = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            with contextlib.suppress(FileNotFoundError):
                folder.rename(old_folder)
            new_folder.rename(folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        else:
            return
        finally:
            shutil.rmtree(old_folder, ignore_errors=True)


def as_markdown_report(report: Report, figures: Sequence[Panel], details: Details | None = None) -> str:
    """Return the report as Markdown; `figures` are PNG files in the same folder."""
    parts = [f"# {markdown_line(report.sweep)}"]
    parts += [markdown_text(report.question)] if report.question else []
    parts += [f"**{_line(text)}**" for text in warning_texts(report)]
    if report.verdicts:
        summary = _line(answer_summary(report, arm_reasons(details)))
        parts += ["## Answer", *([summary] if summary else []), *_verdict_lists(report)]
    parts += [as_markdown(grid) for grid in all_tables(report)]
    parts += [f"![{_line(panel.title)}]({panel.name}.png)" for panel in figures]
    parts.append("## How to read this\n\n" + "\n".join(f"- {_line(note)}" for note in notes(report)))
    return "\n\n".join(parts) + "\n"


def _line(text: str) -> str:
    return markdown_line(one_line(text))


def _verdict_lists(report: Report) -> Iterator[str]:
    """Yield verdicts by context, then verdicts over all contexts, as lists."""
    verdict_lists = [(context, part.verdicts) for context, part in split_by_context(report)]
    for title, verdicts in (*verdict_lists, ("mean over all contexts", report.pooled)):
        if verdicts and report.contexts:
            yield f"### {_line(title)}"
        if verdicts:
            yield "\n".join(f"- {_line(verdict.line)}" for verdict in verdicts)
