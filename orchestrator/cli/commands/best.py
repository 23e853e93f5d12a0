"""Implement `haltsweep best`, which prints a runnable spec of the best config and its checkpoint paths."""

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.locations import runs_root
from orchestrator.cli.options import Runs, Storage, SweepName
from search_spaces.wording import amount, printable, visible
from trainables.metrics import split_and_quantity

if TYPE_CHECKING:
    from orchestrator.cli.reading import Opened
    from orchestrator.plan.types import Arm
    from orchestrator.report.results.types import Report
    from orchestrator.report.results.winner import Winner
    from orchestrator.spec.types import Spec

LONGEST_NAME = 64
OF_ONE_ARM = ("seeds", "splits", "resample_data", "halting_examples")
"""Fields of `confirm` that also apply to a spec with one arm and one set of params."""


def best(
    name: SweepName,
    arm: Annotated[str | None, typer.Option(help="The best of this arm alone.", metavar="ARM")] = None,
    context: Annotated[
        str | None, typer.Option(help="The best of this context alone, e.g. dataset=hard.", metavar="CONTEXT")
    ] = None,
    runs: Runs = None,
    storage: Storage = None,
) -> None:
    """Write a spec of the best system to standard output; its first lines say what it was chosen by."""
    from orchestrator.cli.reading import opened
    from orchestrator.files.file_digests import read_verified
    from orchestrator.report.results.summary import summarise
    from orchestrator.report.results.winner import find_winner
    from orchestrator.spec.load import load_spec
    from orchestrator.spec.scalars import dump

    with opened(name, runs_root(runs), storage) as sweep:
        records = sweep.records()
        report = summarise(sweep.plan, records)
        found = find_winner(sweep.plan, records, report, arm, context)
        read_verified(sweep.folder.spec, "restore it from a backup")
        spec = load_spec(sweep.folder.spec)
        content = _content(spec, found, sweep.plan.arm(found.arm))
        left_out = _left_out(spec.content(), content)
        comments = [*found.comments(), *_state(found, report), *_checkpoints(found, sweep), *left_out]
        comments += _goal_left_out(found, report)
    lines = [f"# {printable(line)}" for line in comments]
    sys.stdout.write(visible("\n".join(lines) + "\n" + dump(content)))


def _state(found: "Winner", report: "Report") -> Iterator[str]:
    from orchestrator.report.caveats.warning_texts import warning_texts

    if report.left:
        yield f"{amount(report.left, 'trial')} of the sweep had not ended: it may be another one at the end."
    if found.by == "confirm" and (verdict := report.verdict(found.arm)) is not None:
        yield f"The report says{_said_of(found, report)}: {verdict.line}"
        yield from warning_texts(report, of_verdicts=True)


def _said_of(found: "Winner", report: "Report") -> str:
    """Return the scope of the verdict if several sets of params of the arm were confirmed."""
    if report.assignments == 1:
        return ""
    if not report.points:
        return f", of the mean over all assignments of {found.arm} that were confirmed and not of this one"
    return ", of point 1 of its front and not of this one" if found.records[0].rank else ""


def _checkpoints(found: "Winner", sweep: "Opened") -> Iterator[str]:
    """Yield the locations of the checkpoints of the winner's trials."""
    from orchestrator.execution.checkpoints.checkpoint_uris import child_uri
    from orchestrator.execution.sweep.launch_folder import read_setup
    from orchestrator.identity import checkpoint_name

    if found.by == "search":
        yield "Search trials keep no checkpoint."
        return
    elsewhere = read_setup(sweep.folder).checkpoints
    for each in found.records:
        assert each.last is not None, "a confirm trial that finished was measured"
        step = checkpoint_name(each.last.step)
        if elsewhere is not None:
            yield f"Checkpoint of seed {each.seed}: {child_uri(elsewhere, each.trial_id, step)}"
        elif (place := sweep.folder.checkpoint(each.trial_id).resolve() / step).is_dir():
            yield f"Checkpoint of seed {each.seed}: {place}"
        else:
            yield f"Checkpoint of seed {each.seed}: none is kept"


def _content(spec: "Spec", found: "Winner", arm: "Arm") -> dict[str, Any]:
    """Return a spec with only the winner's settings and with the original confirm seeds and metrics."""
    from orchestrator.plan.display.format import setting_words
    from search_spaces.paths import MISSING, lookup

    asked = spec.content()
    confirm = asked.get("confirm", {"seeds": [found.records[0].seed], "splits": []})
    chosen = setting_words(found.records[0].assignment)
    content = {
        "name": f"{spec.name[: LONGEST_NAME - 5]}-best",
        "question": f"What does {found.arm} of {spec.name} give{' with ' * bool(chosen)}{chosen}?",
        "trainable": asked.get("trainable"),
        "baseline": _settings(spec, found, arm),
        "confirm": {key: confirm[key] for key in OF_ONE_ARM if key in confirm},
        "answer": _answer(asked, found) if "confirm" in asked else None,
        "posthoc": {
            path: values
            for path, values in asked.get("posthoc", {}).items()
            if "confirm" in asked and lookup(found.settings, path) is not MISSING
        },
        "resources": asked.get("resources"),
    }
    return {key: value for key, value in content.items() if value not in ({}, None)}


def _answer(asked: Mapping[str, Any], found: "Winner") -> dict[str, Any]:
    """Return the original `answer` section, restricted to metrics of the winner's confirm trials."""
    of_several = {"also", "pool", "variance"}
    answer = {key: value for key, value in asked.get("answer", {}).items() if value and key not in of_several}
    if found.by == "confirm":
        answer["metric"] = found.metric
    also = [name for name in asked.get("answer", {}).get("also", ()) if name in found.measured]
    return answer | ({"also": also} if also else {})


def _left_out(asked: Mapping[str, Any], content: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence with the parts of the sweep's spec that do not apply to a single config."""
    gone: list[str] = []
    if asked.get("confirm", {}).get("best") == 1:
        asked = {**asked, "confirm": {**asked["confirm"], "best": None}}
    for section, value in asked.items():
        kept = content.get(section)
        if kept is None:
            gone.append(section)
        elif section in {"confirm", "answer", "posthoc"}:
            gone += [f"{section}.{key}" for key, each in value.items() if each and key not in kept]
            lost = [str(each) for each in value.get("also", ()) if each not in kept.get("also", ())]
            gone += [f"{section}.also of {', '.join(lost)}"] if lost and "also" in kept else []
    if gone:
        message = "; ".join(gone)
        yield f"Left out of the spec of the sweep, as this is one arm with what was chosen: {message}."


def _goal_left_out(found: "Winner", report: "Report") -> Iterator[str]:
    """Yield a warning if only the omitted search section stated which metric values are better."""
    if found.by != "confirm" or found.goal is None or report.quantity(found.metric).better is not None:
        return
    _, quantity = split_and_quantity(found.metric)
    end = {"min": "lowest", "max": "highest"}[found.goal]
    yield (
        f"search.objectives, which are left out, said that the {end} {found.metric} is best: declare "
        f"`better` of {quantity} beside the training code, or arms that you add can only be lower or higher."
    )


def _settings(spec: "Spec", found: "Winner", arm: "Arm") -> dict[str, Any]:
    """Return the settings as trained, without values that follow from other parts of the spec."""
    from search_spaces.paths import lookup, with_value

    settings = dict(found.settings)
    if spec.trainable is None:
        settings["train"] = {key: value for key, value in settings["train"].items() if key != "threads"}
    if spec.confirm is not None and spec.confirm.resample_data:
        path = "task.data_seed"
        drawn = found.records[0].assignment.get(path, lookup(arm.settings, path))
        settings = with_value(settings, path, drawn)
    return settings
