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
from orchestrator.statistics.verdicts import unseen
from search_spaces.wording import amount, markdown_line, markdown_text, one_line

INTERVALS = (
    "Intervals of means are two-sided 95% Student t intervals over seeds, each for itself, cut off where "
    "the quantity cannot be, and left out where all seeds gave the same, which tells nothing of chance. "
    "Where several assignments of an arm are confirmed, their mean is the value of a seed."
)
CLAIMS = (
    "A claim rests on {outcomes} alone. Differences are paired by seed; their intervals and p values come "
    "from one procedure, paired t corrected by Bonferroni for all {family}, and agree: p is at most "
    "{level:g} exactly when the interval leaves out 0. With probability {sure:g} all of these intervals "
    "hold at once."
)
RAISED = (
    "The seeds of {arms} lie closer together than chance explains, or than the steps of the quantity "
    "allow: their intervals are made of half the median spread of all arms, or of that of the steps."
)
VERDICTS = (
    "A verdict is better or worse where the interval leaves out 0{margin}; it is withheld where a seed "
    "failed, below 3 seeds, and where without one single seed the others would not show it. Else it is "
    "undecided; the number of further seeds takes those to come to be like these."
)
EXPLORATORY = (
    "All other differences are exploratory: in so many of them some intervals leave out 0 by chance. The "
    "split valid chose what was kept, so that values on it are too good."
)
FAILURES = (
    "A confirm trial that failed (diverged, out of memory, timed out, crashed) has no value: means are of "
    "the seeds that finished, and the verdict of the arm is undecided."
)
COLLAPSE = (
    "No test of means withstands seeds that collapse now and then: of a system that does so in one run of "
    "ten, {seeds} show no collapse in {tenth:.0%} of cases, in one of five in {fifth:.0%}. Look at the "
    "seeds one by one."
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
    if report.verdicts:
        lines = [f"- {markdown_line(one_line(each.line))}" for each in report.verdicts]
        parts.append("## Answer\n\n" + "\n".join(lines))
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
    notes = [INTERVALS, *_claims(report), FAILURES]
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


def _claims(report: Report) -> list[str]:
    """What may be claimed of these numbers, and what may not."""
    answer = report.answer
    if answer is None or not answer.family:
        return []
    margin = (
        f", and no difference larger than {answer.margin:g} where it lies within that on both sides"
        if answer.margin is not None
        else ""
    )
    seeds = len(report.confirm_seeds)
    known = {"seeds": amount(seeds, "seed"), "tenth": unseen(0.1, seeds), "fifth": unseen(0.2, seeds)}
    outcomes = markdown_line(", ".join(answer.outcomes) or "the first quantity that is measured")
    family = amount(answer.family, "comparison")
    claims = CLAIMS.format(outcomes=outcomes, family=family, level=answer.level, sure=1 - answer.level)
    raised = [each.arm for each in report.effects if each.spread_raised]
    return [
        claims,
        *([RAISED.format(arms=markdown_line(", ".join(dict.fromkeys(raised))))] if raised else []),
        VERDICTS.format(margin=margin),
        EXPLORATORY,
        COLLAPSE.format(**known),
    ]
