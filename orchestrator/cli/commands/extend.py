"""Implement `haltsweep extend`, which adds arms, seeds, trials or re-evaluations to a sweep."""

import shlex
import sys
import time
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestrator.cli.commands.launch import ChangedCode, DriverOption, resume
from orchestrator.cli.display.console import print_error, print_line
from orchestrator.cli.display.lease_messages import report_fenced
from orchestrator.cli.locations import runs_root
from orchestrator.cli.options import Address, Profile, Runs, SweepName, TakeOver
from orchestrator.errors import InputError, StoreError
from orchestrator.files.file_digests import find_edition, read_edition
from orchestrator.identity import SweepFolder
from search_spaces.wording import amount, hint

if TYPE_CHECKING:
    from orchestrator.ledger.store import OnLeaseTaken
    from orchestrator.plan.extension.extension_rules import RequestedWork
    from orchestrator.plan.types import Extension, Plan
    from orchestrator.spec.load import SpecFile
    from orchestrator.trials import Record


Splits = Annotated[
    str | None,
    typer.Option(
        help="New test splits, on which stored checkpoints of confirm trials are evaluated.",
        metavar="SPLIT,...",
    ),
]


def extend(
    name: SweepName,
    changes_or_spec: Annotated[
        list[str] | None,
        typer.Argument(
            help="An extended spec, or changes to the sweep's spec, e.g. "
            "'arms.wide={why: more room, set: {model.width: 128}}'.",
            metavar="[SPEC] [KEY=VALUE]...",
        ),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="New confirm seeds: a number or a list, e.g. '[105, 106]'.")
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(help="New repeats of every search, each with confirm seeds.", min=1)
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Total number of trials of each search.", min=1)] = None,
    arms: Annotated[
        str | None,
        typer.Option(
            help="Add only these arms of SPEC, e.g. 'wide,deep'; by default all changes in SPEC are made.",
            metavar="ARM,...",
        ),
    ] = None,
    splits: Splits = None,
    profile: Profile = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the added trials; write nothing.")] = False,
    changed_code: ChangedCode = False,
    take_over: TakeOver = False,
    driver: DriverOption = None,
    address: Address = None,
    runs: Runs = None,
) -> None:
    """Add arms, seeds, trials or re-evaluations to a sweep; only added trials run."""
    from orchestrator.cli.stored_sweep import open_stored_sweep

    path, changes = _separate_spec(changes_or_spec or ())
    with open_stored_sweep(name, runs_root(runs)) as sweep:
        folder, old, records = sweep.folder, sweep.plan, sweep.newest_records()
    if arms is not None:
        path, changes = None, [*arm_overrides(path, arms, folder, profile), *changes]
        profile = None
    changes += [
        *_seed_and_trial_overrides(old, records, seeds, trials),
        *_repeat_overrides(old, records, repeats),
    ]
    changes += _split_overrides(old, splits)
    spec, new = _plan_extended_spec(folder, path, changes, profile, runs)
    on_fenced = report_fenced if take_over else None
    extended_plan = _extend_plan(
        folder, old, spec, new, write=not dry_run, changed_code=changed_code, on_fenced=on_fenced
    )
    _print_extension(old, extended_plan, _ended_trial_ids(records))
    if dry_run:
        print_line("nothing was written")
        return
    resume(str(folder.root), driver, address, changed_code=changed_code)


def _ended_trial_ids(records: "Sequence[Record]") -> set[str]:
    return {record.trial_id for record in records if record.outcome is not None and record.outcome.is_final}


def _separate_spec(arguments: Sequence[str]) -> tuple[Path | None, list[str]]:
    """Split arguments into the path of a spec, if the first one is a path, and overrides."""
    if arguments and "=" not in arguments[0]:
        return Path(arguments[0]), list(arguments[1:])
    return None, list(arguments)


def _seed_and_trial_overrides(
    plan: "Plan", records: "Sequence[Record]", seeds: str | None, trials: int | None
) -> list[str]:
    """Return the overrides for `--seeds` and `--trials`."""
    overrides = [] if trials is None else [f"search.trials_per_arm={trials}"]
    if seeds is None:
        return overrides
    from orchestrator.identity import derive_seed
    from orchestrator.spec.kinds import MAX_SEEDS
    from orchestrator.spec.overrides import BadOverride, parse

    try:
        new_seeds = parse(f"seeds={seeds}").value
    except BadOverride as error:
        raise InputError(f"--seeds: {error}") from None
    all_seeds = plan.confirm.seeds if plan.confirm is not None else ()
    old_seeds = all_seeds[: len(all_seeds) // plan.repeats]
    if isinstance(new_seeds, int) and not isinstance(new_seeds, bool) and 1 <= new_seeds <= MAX_SEEDS:
        _require_earlier_seeds_ended(plan, records, "seeds", new_seeds)
        derived_seeds = [derive_seed("confirm", number) for number in range(2 * len(old_seeds) + new_seeds)]
        new_seeds = [seed for seed in derived_seeds if seed not in old_seeds][:new_seeds]
    if not isinstance(new_seeds, list):
        raise InputError(
            f"--seeds must be a number of seeds or a list of new seeds such as '[105, 106]', got {seeds}"
        )
    return [*overrides, f"confirm.seeds={[*old_seeds, *new_seeds]}"]


def _repeat_overrides(plan: "Plan", records: "Sequence[Record]", repeats: int | None) -> list[str]:
    """Return the override for `--repeats`."""
    if repeats is None:
        return []
    if plan.search is None:
        raise InputError(f"--repeats {repeats}: {plan.name} has no search to repeat. Add --seeds instead.")
    _require_earlier_seeds_ended(plan, records, "repeats", repeats)
    return [f"search.repeats={plan.repeats + repeats}"]


def _require_earlier_seeds_ended(plan: "Plan", records: "Sequence[Record]", option: str, count: int) -> None:
    """Raise `InputError` if earlier added seeds have not run: the user may have repeated the same command."""
    if not plan.extended:
        return
    launched_seeds, ended_ids = set(plan.extended[0].seeds), _ended_trial_ids(records)
    num_left = sum(
        trial.phase == "confirm" and trial.seed not in launched_seeds and trial.trial_id not in ended_ids
        for trial in plan.trials
    )
    if num_left:
        raise InputError(
            f"--{option} {count}: {option} that were added before have not ended, "
            f"{amount(num_left, 'confirm trial')} left. Continue them with `haltsweep resume {plan.name}`"
            + (", or add a list of seeds, e.g. --seeds '[105, 106]'." if option == "seeds" else ".")
        )


def _split_overrides(plan: "Plan", splits: str | None) -> list[str]:
    """Return the override for `--splits`."""
    from orchestrator.spec.overrides import render

    if splits is None:
        return []
    old_splits = plan.confirm.splits if plan.confirm is not None else ()
    new_splits = [split for split in _parse_names(splits) if split not in old_splits]
    if plan.confirm is None or not new_splits:
        evaluation_text = f"evaluates {', '.join(old_splits) or 'none'}"
        fault = "has no confirm trials" if plan.confirm is None else evaluation_text
        raise InputError(
            f"--splits must name test splits that the confirm trials do not evaluate yet, got {splits!r}: "
            f"{plan.name} {fault}"
        )
    return [render("confirm.splits", [*old_splits, *new_splits])]


def _parse_names(text: str) -> list[str]:
    """Return each of the comma-separated names once."""
    return list(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))


def _plan_extended_spec(
    folder: SweepFolder, path: Path | None, changes: Sequence[str], profile: str | None, runs: Path | None
) -> "tuple[SpecFile, Plan]":
    """Return the extended spec and its plan, as for a launch."""
    from orchestrator.cli.planning import read_and_plan
    from orchestrator.execution.sweep.launch_folder import read_setup
    from trainables.custom.extensions import add_to_path

    read_edition(folder.spec, "restore it from a backup")
    if (code := read_setup(folder).code) is not None:
        add_to_path(Path(code))
    spec = path or find_edition(folder.spec)
    return read_and_plan(spec, changes, profile, runs=runs)


def _extend_plan(
    folder: SweepFolder,
    old: "Plan",
    spec: "SpecFile",
    new: "Plan",
    *,
    write: bool,
    changed_code: bool,
    on_fenced: "OnLeaseTaken | None",
) -> "Plan":
    """Return the extended plan, and write it if `write` is True. Raise `InputError` if forbidden."""
    from orchestrator.execution.checkpoints.checkpoint_checks import require_checkpoints
    from orchestrator.execution.code_digests import collect_provenance, require_same_code
    from orchestrator.execution.datasets import require_unchanged_data
    from orchestrator.execution.sweep.extend_folder import commit_extension
    from orchestrator.execution.sweep.launch_folder import read_setup, refuse_copy
    from orchestrator.ledger.fold import records
    from orchestrator.ledger.lease import Holder
    from orchestrator.ledger.store import Ledger
    from orchestrator.plan.serialise import read_plan
    from orchestrator.spec.load import to_yaml

    setup = read_setup(folder)
    refuse_copy(folder, setup)
    with Ledger.open(setup.ledger_url(folder), old.name) as ledger:
        # Hold the lease, so that no session continues with the old plan.
        lease = ledger.claim(Holder.current(), on_fenced=on_fenced) if write else None
        try:
            if read_plan(folder) != old:
                raise StoreError(f"{old.name} was extended by another process meanwhile; try again")
            trial_records = records(ledger.newest_events(), old)
            extended_plan = _merge_plans(folder, old, spec, new, trial_records)
            require_checkpoints(folder, setup.checkpoints, extended_plan, trial_records)
            origin = collect_provenance(extended_plan, setup)
            if not changed_code:
                require_same_code(old, trial_records, origin)
            if write and not changed_code:
                require_unchanged_data(old, trial_records, setup)
            if write:
                commit_extension(folder, extended_plan, to_yaml(spec.spec), origin)
        finally:
            if lease is not None:
                ledger.release(lease)
    return extended_plan


def _merge_plans(
    folder: SweepFolder, old: "Plan", spec: "SpecFile", new: "Plan", records: "Sequence[Record]"
) -> "Plan":
    """Return the old plan with the additions of the new one. Raise `InputError` for a forbidden change."""
    from orchestrator.plan.extension.extending import allowed_changes, extend_plan
    from orchestrator.spec.load import load_spec

    old_content, phases = load_spec(find_edition(folder.spec)).content(), _requested_work(old, records)
    allowed = allowed_changes(old.name, old_content, spec.spec.content(), phases)
    extension = _describe_extension(old, records, [str(change) for change in allowed])
    without_checkpoint = {record.trial_id for record in records if _lacks_checkpoint(record)}
    return extend_plan(old, new, {record.trial_id for record in records}, extension, without_checkpoint)


def _lacks_checkpoint(record: "Record") -> bool:
    """Return whether the trial ended without a checkpoint that can be re-evaluated."""
    from orchestrator.trials import OutcomeKind

    kind = record.outcome
    return kind is not None and kind.is_final and kind is not OutcomeKind.FINISHED


def _requested_work(plan: "Plan", records: "Sequence[Record]") -> "RequestedWork":
    from orchestrator.plan.extension.extension_rules import RequestedWork

    phases = {record.phase for record in records}
    decides = plan.confirm is not None and plan.confirm.stop is not None
    return RequestedWork("search" in phases, "confirm" in phases, decides, plan.trainable is not None)


def _describe_extension(plan: "Plan", records: "Sequence[Record]", changes: Sequence[str]) -> "Extension":
    from orchestrator.files.redact import redact_arguments
    from orchestrator.plan.types import Extension

    measured_seeds = {
        (record.arm, record.seed)
        for record in records
        if record.phase == "confirm" and record.outcome is not None and record.last is not None
    }
    return Extension(
        at=time.time(),
        by=shlex.join(redact_arguments(sys.argv)),
        spec_digest=plan.spec_digest,
        changes=tuple(changes),
        arms=tuple(arm.name for arm in plan.arms),
        seeds=plan.confirm.seeds if plan.confirm is not None else (),
        seen=dict(sorted(Counter(arm for arm, _ in measured_seeds).items())),
    )


def _print_extension(old: "Plan", extended_plan: "Plan", ended_ids: "Collection[str]") -> None:
    """Print the added trials, the unended earlier trials, and the effect on claims.

    Args:
        old: Plan before the extension.
        extended_plan: Plan after the extension.
        ended_ids: Ids of trials with a final outcome.
    """
    extension = extended_plan.extended[-1]
    for change in extension.changes:
        print_line(change)
    old_ids = {trial.trial_id for trial in old.trials}
    added_counts = Counter(trial.phase for trial in extended_plan.trials if trial.trial_id not in old_ids)
    phases = ", ".join(f"{count} {phase}" for phase, count in added_counts.items())
    trials = f"{amount(added_counts.total(), 'trial')} added to {len(old_ids):,}"
    print_line(f"{extended_plan.name}: {trials}" + (f" ({phases})" if phases else ""))
    if num_open := len(old_ids.difference(ended_ids)):  # for example after a used-up budget was raised
        print_line(
            f"{num_open:,} of the {len(old_ids):,} earlier trials have not ended and may continue, too"
        )
    if extension.seen and added_counts["confirm"]:
        print_error(
            "results of confirm trials existed before this extension: the report marks verdicts from old and "
            "new trials as exploratory"
        )


def arm_overrides(
    path: Path | None, names: str, folder: SweepFolder, profile: str | None = None
) -> list[str]:
    """Return overrides `arms.NAME={...}` that copy arms from the spec at `path`.

    The changes of an arm apply to the sweep's baseline. If the baseline of the spec differs, a warning is
    printed.

    Args:
        path: Spec that contains the arms.
        names: Comma-separated names of arms.
        folder: Folder of the sweep.
        profile: Profile of the spec to apply.

    Raises:
        InputError: The spec is missing or lacks an arm.
        SpecError: The spec is invalid.
    """
    from orchestrator.spec.differences import differences
    from orchestrator.spec.load import load_spec
    from orchestrator.spec.overrides import render

    arm_names = _parse_names(names)
    if path is None or not arm_names:
        raise InputError(
            "--arms needs a SPEC with these arms, as in `extend NAME SPEC --arms wide,deep`, "
            f"got {names!r}{'' if path else ' without SPEC'}; without a spec, write the arm in full: "
            "'arms.wide={why: more room, set: {model.width: 128}}'"
        )
    content = load_spec(path, profile=profile).content()
    arms = content.get("arms", {})
    for name in arm_names:
        if name not in arms:
            raise InputError(
                f"--arms must name arms under `arms` of {path}, got {name!r}. {hint(name, arms)}"
            )
    sweep_content = load_spec(find_edition(folder.spec)).content()
    if baseline_differences := "; ".join(
        map(str, differences(sweep_content["baseline"], content["baseline"]))
    ):
        print_error(
            f"the arms change the baseline of {folder.name}, which differs from the baseline in {path}: "
            f"{baseline_differences}"
        )
    return [render(f"arms.{name}", arms[name]) for name in arm_names]
