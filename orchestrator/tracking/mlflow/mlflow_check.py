"""Whether MLflow says what the ledger says: every run's points, parameters, tags and status."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.files.findings import Finding
from orchestrator.tracking.mlflow.desired_runs import PROJECTION, SWEEP, DesiredRun, DesiredRuns
from orchestrator.tracking.mlflow.mlflow_reading import Kept
from orchestrator.tracking.mlflow.mlflow_runs import MOST_PARAM_TEXT
from orchestrator.tracking.mlflow.points import PREFIX, Point
from search_spaces.wording import amount

WHAT = "mlflow"
CHANGING = frozenset({f"{PREFIX}outcome", f"{PREFIX}reason"})
"""Tags that follow what happens."""
SHOWN = 3
LACKS = "lacks"


@dataclass(frozen=True, slots=True)
class Differences:
    """How one run differs from what it should be."""

    wrong: tuple[str, ...]
    missing: tuple[str, ...]
    """What may only be late."""
    outdated: tuple[str, ...]
    """What is logged of arms when a sweep is done is written when a report is asked for: nothing tells late
    from wrong."""

    @property
    def any(self) -> bool:
        """Whether something of the log is wrong or missing."""
        return bool(self.wrong or self.missing)


def compare(
    desired_runs: DesiredRuns,
    kept: Sequence[Kept],
    aggregates: Mapping[str, Mapping[str, float]],
    *,
    settled: bool,
    sync: str,
) -> list[Finding]:
    """One finding a run that is not as it should be, and one for all others.

    `settled`: everything was sent to MLflow, so that what is late is wrong; not so of what another haltsweep,
    which made runs of less, wrote. `sync` is the command that catches
    up. `desired_runs` have heard the log, and at least as much of it as MLflow.
    """
    written_by = next(
        (each.run.tags.get(f"{PREFIX}projection") for each in kept if each.run.key == SWEEP), None
    )
    settled = settled and written_by == PROJECTION
    keys = Counter(each.run.key for each in kept)
    ids = {each.run.key: each.run.run_id for each in kept}
    published = desired_runs.publish(aggregates)
    remedy = f"delete that run in MLflow, then `{sync}` makes it again from the ledger"
    found = [
        Finding(WHAT, "damaged", f"{key} is there {count} times", f"`{sync}` deletes all but one")
        for key, count in keys.items()
        if count > 1
    ]
    late = [key for key in desired_runs.runs if key not in keys]
    for each in kept:
        name = f"run {each.run.run_id} ({each.run.key})"
        if each.run.key not in desired_runs.runs:
            found.append(Finding(WHAT, "damaged", f"{name}: nothing in the ledger is called so", remedy))
            continue
        desired = desired_runs.seen(each.run.key)
        parent = None if desired.parent is None else ids.get(desired.parent)
        closing = (published.get(each.run.key, {}), desired_runs.at_close.get(each.run.key, ()))
        differ = differences(desired, each, parent, *closing)
        heard = desired_runs.runs[each.run.key]
        # What writes to MLflow may have died with the process that ran the sweep, with part of it unwritten.
        complete = settled and (heard is desired or differences(heard, each, parent, *closing).any)
        if differ.wrong or (complete and differ.missing):
            text = _listed([*differ.wrong, *differ.missing])
            found.append(Finding(WHAT, "damaged", f"{name}: {text}", remedy))
        elif differ.missing or differ.outdated:
            late.append(each.run.key)
    points = sum(map(len, (history for each in kept for history in each.histories.values())))
    text = f"{amount(len(kept), 'run')} with {amount(points, 'point')} compared with the ledger"
    if late:
        return [
            *found,
            Finding(WHAT, "behind", f"{text}, {len(late)} of them behind", f"`{sync}` catches up"),
        ]
    return found or [Finding(WHAT, "sound", text)]


def differences(
    desired: DesiredRun,
    kept: Kept,
    parent: str | None,
    published: Mapping[str, float],
    at_close: Sequence[Point] = (),
) -> Differences:
    """How a run differs from its desired; `published` are the arm's means, of which the newest counts."""
    wrong: list[str] = []
    missing: list[str] = []
    for late, text in (
        *_points([*desired.points, *at_close], kept, published.keys(), retried=bool(desired.retried_ms)),
        *_params(desired, kept),
        *_tags(desired, kept, parent),
        *_status(desired, kept),
        *_inputs(desired, kept),
    ):
        (missing if late else wrong).append(text)
    known = tuple(f"{name} {LACKS}" for name in {point.key for point in at_close})
    at_close_missing = [text for text in missing if text.startswith(known)] if known else []
    missing = [text for text in missing if text not in at_close_missing]
    newest = {name: history[-1][1] for name, history in kept.histories.items()}
    outdated = [
        f"{name} is not as reported" for name, value in published.items() if newest.get(name) != value
    ]
    return Differences(tuple(wrong), tuple(missing), (*outdated, *at_close_missing))


Differing = Iterator[tuple[bool, str]]
"""Whether it may only be late, and what differs."""


def _points(points: Sequence[Point], kept: Kept, published: Collection[str], *, retried: bool) -> Differing:
    expected: dict[str, list[tuple[int, float]]] = {}
    for point in points:
        expected.setdefault(point.key, []).append((point.step, point.value))
    for name, history in kept.histories.items():
        wanted = sorted(expected.pop(name, []))
        if name in published and not wanted:
            continue
        # A retried trial measures earlier steps again.
        part = Counter(history) <= Counter(wanted) if retried else history == wanted[: len(history)]
        if not part:
            yield False, f"points of {name} differ"
        elif len(history) < len(wanted):
            yield True, f"{name} {LACKS} {amount(len(wanted) - len(history), 'point')}"
    for name in expected:
        yield True, f"{name} {LACKS} all points"


def _params(desired: DesiredRun, kept: Kept) -> Differing:
    for name, value in desired.params.items():
        stored = kept.run.params.get(name)
        if stored is None:
            yield True, f"parameter {name} is missing"
        elif stored != value[:MOST_PARAM_TEXT]:
            yield False, f"parameter {name} is {stored!r}, the ledger says {value[:MOST_PARAM_TEXT]!r}"
    for name in kept.run.params.keys() - desired.params.keys():
        yield False, f"parameter {name} is in no trial"


def _tags(desired: DesiredRun, kept: Kept, parent: str | None) -> Differing:
    wanted = dict(desired.tags) | ({"mlflow.parentRunId": parent} if parent is not None else {})
    for name, value in wanted.items():
        stored = kept.run.tags.get(name)
        if stored != value:
            late = stored is None or name in CHANGING or desired.key == SWEEP
            yield late, f"tag {name} is {stored!r}, the ledger says {value!r}"


def _status(desired: DesiredRun, kept: Kept) -> Differing:
    if (kept.run.status, kept.run.end_ms) != (desired.status, desired.end_ms or kept.run.end_ms):
        yield True, f"status is {kept.run.status}, the ledger says {desired.status}"


def _inputs(desired: DesiredRun, kept: Kept) -> Differing:
    wanted = {each[:3] for each in desired.inputs}
    for name, digest, context in sorted(wanted - kept.run.inputs):
        yield True, f"dataset {name} ({context}, {digest}) is missing"
    for name, digest, context in sorted(kept.run.inputs - wanted) if wanted else ():
        yield False, f"dataset {name} ({context}, {digest}) is none that was read"


def _listed(texts: Sequence[str]) -> str:
    more = len(texts) - SHOWN
    return "; ".join(texts[:SHOWN]) + (f"; and {more} more" if more > 0 else "")
