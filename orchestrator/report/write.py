"""Puts a report on disk: written elsewhere, then renamed, so that a reader never meets half of one."""

import contextlib
import errno
import shutil
import tempfile
from pathlib import Path

from orchestrator.file_digests import write_manifest
from orchestrator.report.figures import draw, figured
from orchestrator.report.searched import NO_CLAIM
from orchestrator.report.tables import as_csv, as_json, as_markdown, grids
from orchestrator.report.types import Report
from search_spaces.wording import amount, markdown_line, markdown_text, one_line

INTERVALS = (
    "Intervals are two-sided 95% Student t intervals over seeds, cut off where the quantity cannot be, and "
    "left out where all seeds gave the same, which tells nothing of chance; differences are paired by seed "
    "and tested by flipping signs, p values corrected by Holm over the arms of a column. Where several "
    "assignments of an arm are confirmed, their mean is the value of a seed."
)
CLAIMS = (
    "An interval of a difference is of that arm alone, not corrected for how many arms there are, and takes "
    "seeds to be normally distributed; the p values assume neither. Where the interval leaves out 0 and p is "
    "large, the seeds are too few to tell: p is what may be claimed."
)
FAILURES = (
    "A confirm trial that failed (diverged, out of memory, timed out, crashed) counts at the floor in every "
    "quantity that has one{named}; in other quantities it is missing, so that their n is smaller."
)


def write(report: Report, folder: Path) -> Path:
    """Replace `folder` by report.md, report.csv, report.json and the figures; returns report.md's path."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        figures = [name for name in figured(report) if draw(report, name, fresh / f"{name}.png")]
        (fresh / "report.md").write_text(markdown(report, figures), encoding="utf-8")
        (fresh / "report.csv").write_text(as_csv(report), encoding="utf-8")
        (fresh / "report.json").write_text(as_json(report), encoding="utf-8")
        write_manifest(fresh, sorted(fresh.iterdir()))
        fresh.chmod(0o755)
        _put(fresh, folder)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    return folder / "report.md"


def _put(fresh: Path, folder: Path) -> None:
    """Make `fresh` the report. Others may put theirs there at the same time: the last one stays."""
    while True:
        old = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            with contextlib.suppress(FileNotFoundError):
                folder.rename(old)
            fresh.rename(folder)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        else:
            return
        finally:
            shutil.rmtree(old, ignore_errors=True)


def markdown(report: Report, figures: list[str]) -> str:
    """The report as text; `figures` are names of PNG files beside it."""
    parts = [f"# {markdown_line(report.sweep)}"]
    if report.question:
        parts.append(markdown_text(report.question))
    if report.left:
        parts.append(f"**{unfinished(report)}**")
    if report.unread:
        parts.append(f"**{markdown_line(one_line(unread(report)))}**")
    parts += [as_markdown(grid) for grid in grids(report)]
    parts += [f"![{name}]({name}.png)" for name in figures]
    parts.append(_notes(report))
    return "\n\n".join(parts) + "\n"


def unfinished(report: Report) -> str:
    """What a reader of a sweep that is not over must know."""
    have = "has" if report.left == 1 else "have"
    return f"{amount(report.left, 'trial')} {have} not ended: every number is of those that have."


def unread(report: Report) -> str:
    """Of which test splits there is no value."""
    return (
        f"No confirm trial measured anything on {', '.join(report.unread)}: the training code must report "
        f"<split>/<quantity> of every split that it is given, e.g. {report.unread[0]}/accuracy."
    )


def _notes(report: Report) -> str:
    notes = [INTERVALS, CLAIMS, FAILURES.format(named=_with_floors(report))]
    notes += [markdown_line(one_line(each.note)) for each in report.quantities if each.note]
    if report.searched:
        notes.append(NO_CLAIM)
    notes += [f"Ended early: {markdown_line(one_line(each))}." for each in report.skipped]
    sources = dict.fromkeys((each.arm, each.published_source) for each in (*report.cells, *report.posthoc))
    sources |= dict.fromkeys((each.system, each.source) for each in report.prior_work)
    cited = [(markdown_line(arm), markdown_line(source)) for arm, source in sources if source]
    notes += [f"Published values of {arm}: {source}" for arm, source in cited]
    if report.power:
        notes.append(report.power)
    return "## How to read this\n\n" + "\n".join(f"- {note}" for note in notes)


def _with_floors(report: Report) -> str:
    """Which quantities those are here, and which count at 0 beside them."""
    floors = dict.fromkeys(metric.rpartition("/")[2] for metric in report.metrics if metric in report.floors)
    borrowed = [each for each in report.quantities if each.failed_as]
    named = f" ({', '.join(floors)})" if floors else ""
    return named + "".join(
        f", in {each.name} at that of {each.failed_as}, or at 0 where there is none" for each in borrowed
    )
