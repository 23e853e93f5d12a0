"""Implement `haltsweep best`, which prints a runnable spec of the best config and its checkpoint paths."""

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestrator.cli.locations import runs_root
from orchestrator.cli.options import Runs, Storage, SweepName
from search_spaces.wording import amount, escape_to_line, escape_unprintable

if TYPE_CHECKING:
    from orchestrator.cli.stored_sweep import StoredSweep
    from orchestrator.plan.types import Arm
    from orchestrator.report.results.types import Report
    from orchestrator.report.results.winner import Winner
    from orchestrator.spec.types import Spec

MAX_NAME_LENGTH = 64
SINGLE_ARM_FIELDS = ("seeds", "splits", "resample_data", "halting_examples")
"""Fields of `confirm` that also apply to a spec with one arm and one set of params."""


def best(
    name: SweepName,
    arm: Annotated[str | None, typer.Option(help="Best config of this arm only.", metavar="ARM")] = None,
    context: Annotated[
        str | None,
        typer.Option(help="Best config of this context only, e.g. dataset=hard.", metavar="CONTEXT"),
    ] = None,
    runs: Runs = None,
    storage: Storage = None,
) -> None:
    """Print a spec that trains the best config again; its first lines state how it was chosen."""
    from orchestrator.cli.stored_sweep import open_stored_sweep
    from orchestrator.files.file_digests import read_verified
    from orchestrator.report.results.summary import summarise
    from orchestrator.report.results.winner import find_winner
    from orchestrator.spec.load import load_spec
    from orchestrator.spec.scalars import dump

    with open_stored_sweep(name, runs_root(runs), storage) as sweep:
        records = sweep.records()
        report = summarise(sweep.plan, records)
        choice = find_winner(sweep.plan, records, report, arm, context)
        read_verified(sweep.folder.spec, "restore it from a backup")
        spec = load_spec(sweep.folder.spec)
        content = _spec_content(spec, choice, sweep.plan.arm(choice.arm))
        omissions = _omission_comments(spec.content(), content)
        comments = [
            *choice.comments(),
            *_result_comments(choice, report),
            *_checkpoint_comments(choice, sweep),
            *omissions,
        ]
    lines = [f"# {escape_to_line(line)}" for line in comments]
    sys.stdout.write(escape_unprintable("\n".join(lines) + "\n" + dump(content)))


def _result_comments(choice: "Winner", report: "Report") -> Iterator[str]:
    from orchestrator.report.caveats.warning_texts import warning_texts

    if report.left:
        remainder = amount(report.left, "trial")
        yield f"{remainder} of the sweep had not ended, so the best config may still change."
    if choice.phase == "confirm" and (verdict := report.verdict(choice.arm)) is not None:
        yield f"Verdict in the report{_scope_of_verdict(choice, report)}: {verdict.line}"
        yield from warning_texts(report, for_verdicts=True)


def _scope_of_verdict(choice: "Winner", report: "Report") -> str:
    """Return the scope of the verdict if several sets of params of the arm were confirmed."""
    if report.assignments == 1:
        return ""
    if not report.points:
        return f", on the mean over all confirmed params of {choice.arm}, not on these params"
    return ", on point 1 of its front, not on these params" if choice.records[0].rank else ""


def _checkpoint_comments(choice: "Winner", sweep: "StoredSweep") -> Iterator[str]:
    """Yield the locations of the checkpoints that the winner's trials stored."""
    from orchestrator.execution.checkpoints.checkpoint_uris import child_uri
    from orchestrator.execution.sweep.launch_folder import read_setup
    from orchestrator.identity import checkpoint_name

    if choice.phase == "search":
        yield "Search trials store no checkpoint."
        return
    checkpoint_uri = read_setup(sweep.folder).checkpoints
    for record in choice.records:
        assert record.last is not None, "a finished confirm trial has a measurement"
        step = checkpoint_name(record.last.step)
        if checkpoint_uri is not None:
            yield f"Checkpoint of seed {record.seed}: {child_uri(checkpoint_uri, record.trial_id, step)}"
        elif (folder := sweep.folder.checkpoint(record.trial_id).resolve() / step).is_dir():
            yield f"Checkpoint of seed {record.seed}: {folder}"
        else:
            yield f"Checkpoint of seed {record.seed}: none is stored"


def _spec_content(spec: "Spec", choice: "Winner", arm: "Arm") -> dict[str, Any]:
    """Return a spec with only the winner's settings, and with the seeds and metrics of its confirm trials."""
    from orchestrator.plan.display.format import setting_words
    from search_spaces.paths import MISSING, lookup

    original = spec.content()
    has_confirm = "confirm" in original
    confirm = original.get("confirm", {"seeds": [choice.records[0].seed], "splits": []})
    if choice.repeat is not None:  # the seeds in the spec are those of repeat 0
        confirm = {**confirm, "seeds": [*choice.seeds]}
    posthoc = original.get("posthoc", {}) if has_confirm else {}
    params = setting_words(choice.records[0].assignment)
    content = {
        "name": f"{spec.name[: MAX_NAME_LENGTH - 5]}-best",
        "question": f"How well does {choice.arm} of {spec.name} perform{' with ' * bool(params)}{params}?",
        "trainable": original.get("trainable"),
        "baseline": _trained_settings(spec, choice, arm),
        "confirm": {key: confirm[key] for key in SINGLE_ARM_FIELDS if key in confirm},
        "answer": _restrict_answer(original, choice) if has_confirm else None,
        "posthoc": {
            path: values for path, values in posthoc.items() if lookup(choice.settings, path) is not MISSING
        },
        "resources": original.get("resources"),
    }
    return {key: value for key, value in content.items() if value not in ({}, None)}


def _restrict_answer(original: Mapping[str, Any], choice: "Winner") -> dict[str, Any]:
    """Return the `answer` section of a spec, restricted to metrics of the winner's confirm trials.

    For a custom trainable it states the goal, which may come from the omitted search section.
    """
    section = original.get("answer", {})
    multi_arm_fields = {"also", "pool", "variance"}
    answer = {key: value for key, value in section.items() if value and key not in multi_arm_fields}
    if choice.phase == "confirm":
        answer.pop("goal", None)
        answer["metric"] = choice.metric
        if choice.goal is not None and original.get("trainable") is not None:
            answer["goal"] = choice.goal
    also = [name for name in section.get("also", ()) if name in choice.measured_metrics]
    return answer | ({"also": also} if also else {})


def _omission_comments(original: Mapping[str, Any], content: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence on the parts of the sweep's spec that do not apply to a single config."""
    omitted: list[str] = []
    if original.get("confirm", {}).get("best") == 1:
        original = {**original, "confirm": {**original["confirm"], "best": None}}
    for section, value in original.items():
        remaining = content.get(section)
        if remaining is None:
            omitted.append(section)
        elif section in {"confirm", "answer", "posthoc"}:
            omitted += [f"{section}.{key}" for key, part in value.items() if part and key not in remaining]
            metrics = [str(name) for name in value.get("also", ()) if name not in remaining.get("also", ())]
            if metrics and "also" in remaining:
                omitted.append(f"{section}.also of {', '.join(metrics)}")
    if omitted:
        message = "; ".join(omitted)
        yield f"Left out of the sweep's spec, since this spec has one arm with fixed params: {message}."


def _trained_settings(spec: "Spec", choice: "Winner", arm: "Arm") -> dict[str, Any]:
    """Return the settings as trained, without values that follow from other parts of the spec."""
    from search_spaces.paths import lookup, with_value

    settings = dict(choice.settings)
    if spec.trainable is None:
        settings["train"] = {key: value for key, value in settings["train"].items() if key != "threads"}
    if spec.confirm is not None and spec.confirm.resample_data:
        path = "task.data_seed"
        param_value = choice.records[0].assignment.get(path, lookup(arm.settings, path))
        settings = with_value(settings, path, param_value)
    return settings
