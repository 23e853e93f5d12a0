"""Format data sets as tables and small histograms for terminals, and as plain values for scripts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from orchestrator.cli.task_data import TaskData
from trainables.data.facts import Example, Facts, batch_facts, examples, split_facts
from trainables.data.inventory import DataFile
from trainables.data.order import batch_indices
from trainables.data.split import Split
from trainables.task_catalog import stream
from trainables.task_protocol import SplitInfo

if TYPE_CHECKING:
    from rich.console import RenderableType

DISPLAY_SEED = 0
"""Seed for the order of displayed examples and for the displayed batch of a streamed split."""
STREAM_BATCH_SIZE = 512
"""Number of samples in the batch that represents a streamed split."""
BLOCKS = " ▁▂▃▄▅▆▇█"
HISTOGRAM_COLUMNS = 40
MAX_LABELS = 12
MAX_EXAMPLE_LENGTH = 400
"""Maximum number of characters of an example on a terminal."""


@dataclass(frozen=True, slots=True)
class SplitView:
    """A split with its statistics and examples, for display."""

    subject: TaskData
    info: SplitInfo
    facts: Facts
    examples: tuple[Example, ...]
    content_hash: str
    """Content hash; empty for a streamed split."""

    @property
    def title(self) -> str:
        """Task and split, e.g. `listops/train`."""
        return f"{self.subject.name}/{self.info.name}"


def make_split_view(subject: TaskData, info: SplitInfo, split: Split | None, count: int) -> SplitView:
    """Return a split with its statistics and `count` examples, for display.

    Args:
        subject: The task.
        info: Description of the split.
        split: The stored split; None for a streamed split.
        count: Maximum number of examples.
    """
    if split is None:
        batch = stream(subject.config, STREAM_BATCH_SIZE, DISPLAY_SEED, subject.steps - 1)
        rows = tuple(examples(batch, subject.config))[:count]
        return SplitView(subject, info, batch_facts(batch, subject.config), rows, "")
    facts = split_facts(split, subject.config, info.role, subject.batch_size, subject.batch_tokens)
    rows = ()
    if count:
        indices = batch_indices(len(split), min(count, len(split)), DISPLAY_SEED, 0)
        rows = tuple(examples(split.batch(indices), subject.config))
    return SplitView(subject, info, facts, rows, split.content_hash)


def view_to_json(view: SplitView) -> dict[str, Any]:
    """Return JSON values for scripts."""
    lengths, facts = view.facts.lengths, view.facts
    values, counts = np.unique(lengths, return_counts=True)
    return {
        "task": view.subject.config.model_dump(mode="json"),
        "split": view.info.name,
        "role": view.info.role,
        "streamed": view.info.streamed,
        "content_hash": view.content_hash or None,
        "examples": len(lengths),
        "tokens": int(lengths.sum()),
        "lengths": dict(zip(map(str, values.tolist()), counts.tolist(), strict=True)),
        "labels": facts.labels,
        "floor": facts.floor,
        "padding": {"batch_size": STREAM_BATCH_SIZE if view.info.streamed else view.subject.batch_size}
        | facts.padding,
        "shown": [
            {"text": example.text, "answer": example.answer, "length": example.length}
            for example in view.examples
        ],
    }


def render_views(views: Sequence[SplitView]) -> "Iterator[RenderableType]":
    """Yield a table of all splits, then histograms and examples of each."""
    from rich.text import Text

    yield _split_table(views)
    for view in views:
        yield Text(f"\n{_heading(view)}", style="bold")
        lengths = view.facts.lengths
        yield Text(f"lengths {lengths.min()} {sparkline(lengths)} {lengths.max()}")
        if view.facts.answer_lengths is not None:
            answers = view.facts.answer_lengths
            yield Text(f"answers {answers.min()} {sparkline(answers)} {answers.max()}")
        yield Text(f"labels  {label_text(view.facts.labels)}")
        for example in view.examples:
            picture = example.picture or shorten_example(example.text)
            yield Text(f"{picture}\n  = {shorten_example(example.answer)}")


def _heading(view: SplitView) -> str:
    if view.info.streamed:
        step = f"step {view.subject.steps - 1:,} of seed {DISPLAY_SEED}"
        return f"{view.title}, a batch of {STREAM_BATCH_SIZE} drawn for {step}"
    return view.title


def _split_table(views: Sequence[SplitView]) -> "RenderableType":
    from rich.table import Table

    sizes = " or ".join(map(str, sorted({view.subject.batch_size for view in views})))
    table = Table(
        caption=f"padding in batches of {sizes}; splits other than training splits are sorted by length"
    )
    for header in ("split", "role"):
        table.add_column(header, no_wrap=True)
    for header in ("examples", "tokens", "shortest", "median", "mean", "longest", "floor", "padding"):
        table.add_column(header, justify="right", no_wrap=True)
    for view in views:
        table.add_row(*_cells(view))
    return table


def _cells(view: SplitView) -> Iterator[str]:
    lengths, facts = view.facts.lengths, view.facts
    yield view.title
    yield view.info.role
    yield "endless" if view.info.streamed else f"{len(lengths):,}"
    yield "endless" if view.info.streamed else f"{lengths.sum():,}"
    yield str(lengths.min())
    yield f"{np.median(lengths):g}"
    yield f"{lengths.mean():.1f}"
    yield str(lengths.max())
    yield f"{facts.floor:.1%}"
    yield ", ".join(f"{order} {share:.1%}" for order, share in facts.padding.items())


def sparkline(values: np.ndarray) -> str:
    """Return a one-line histogram of integers, in which every non-empty bin is visible."""
    low, high = int(values.min()), int(values.max())
    columns = min(HISTOGRAM_COLUMNS, high - low + 1)
    counts, _ = np.histogram(values, bins=columns, range=(low, high + 1))
    heights = np.ceil(counts / counts.max() * (len(BLOCKS) - 1)).astype(int)
    return "".join(BLOCKS[height] for height in heights)


def label_text(labels: Mapping[str, int]) -> str:
    """Return shares of labels in the order of classes, or only the most frequent of many labels."""
    total = sum(labels.values())
    entries = list(labels.items())
    if len(entries) > MAX_LABELS:
        entries = sorted(entries, key=lambda item: -item[1])[:MAX_LABELS]
    words = [f"{name}: {count / total:.1%}" for name, count in entries]
    num_hidden = len(labels) - len(entries)
    return ", ".join(words) + (f", and {num_hidden:,} more" if num_hidden else "")


def shorten_example(text: str) -> str:
    """Return at most `MAX_EXAMPLE_LENGTH` characters of a text."""
    num_cut = len(text) - MAX_EXAMPLE_LENGTH
    return text if num_cut <= 0 else f"{text[:MAX_EXAMPLE_LENGTH]} ... and {num_cut:,} characters more"


def file_line(file: DataFile, *, removed: bool) -> str:
    """Return one output line of `haltsweep data verify`."""
    verdict = f"{file.verdict}, removed" if removed else file.verdict
    return f"{verdict}: {file.path}: " + (file.reason or f"{file.size:,} bytes, {file.content_hash}")


def file_to_json(file: DataFile, *, removed: bool) -> dict[str, Any]:
    """Return the values of `file_line` for scripts."""
    return asdict(file) | {"path": str(file.path), "removed": removed}
