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
from orchestrator.cli.display.console import complain, say
from orchestrator.cli.display.fencing import tell_fenced
from orchestrator.cli.locations import runs_root
from orchestrator.cli.options import Address, Profile, Runs, SweepName, TakeOver
from orchestrator.errors import InputError, StoreError
from orchestrator.files.file_digests import find_edition, read_edition
from orchestrator.identity import SweepFolder
from search_spaces.wording import amount, hint

if TYPE_CHECKING:
    from orchestrator.ledger.store import OnFenced
    from orchestrator.plan.extension.extension_rules import Begun
    from orchestrator.plan.types import Extension, Plan
    from orchestrator.spec.load import SpecFile
    from orchestrator.trials import Record


Splits = Annotated[
    str | None,
    typer.Option(
        help="Further test splits: kept checkpoints of confirm trials are read again for them.",
        metavar="SPLIT,...",
    ),
]


def extend(
    name: SweepName,
    asked: Annotated[
        list[str] | None,
        typer.Argument(
            help="A spec that asks for more, or what to change in that of the sweep, e.g. "
            "'arms.wide={why: more room, set: {model.width: 128}}'.",
            metavar="[SPEC] [KEY=VALUE]...",
        ),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="Further confirm seeds: how many, or a list, e.g. '[105, 106]'.")
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(help="Further repeats of every search, each with confirm seeds.", min=1)
    ] = None,
    trials: Annotated[int | None, typer.Option(help="Trials of each search, in all.", min=1)] = None,
    arms: Annotated[
        str | None,
        typer.Option(
            help="Take only these arms of SPEC, e.g. 'wide,deep'; else all that it asks for is taken up.",
            metavar="ARM,...",
        ),
    ] = None,
    splits: Splits = None,
    profile: Profile = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be added; write nothing.")
    ] = False,
    changed_code: ChangedCode = False,
    take_over: TakeOver = False,
    driver: DriverOption = None,
    address: Address = None,
    runs: Runs = None,
) -> None:
    """Add arms, seeds, trials or readings to a sweep: what has run stays, and only the difference runs."""
    from orchestrator.cli.reading import opened

    path, changes = _split(asked or ())
    with opened(name, runs_root(runs)) as sweep:
        folder, old, known = sweep.folder, sweep.plan, sweep.newest_records()
    if arms is not None:
        path, changes = None, [*arms_of(path, arms, folder, profile), *changes]
        profile = None
    changes += [*_options(old, known, seeds, trials), *_repeat_options(old, known, repeats)]
    changes += _split_options(old, splits)
    if path is None:
        _refuse_unplanned(folder, old, changes, profile, _begun(old, known))
    spec, new = _planned(folder, path, changes, profile, runs)
    on_fenced = tell_fenced if take_over else None
    made = _extended(
        folder, old, spec, new, write=not dry_run, changed_code=changed_code, on_fenced=on_fenced
    )
    _tell(old, made, {each.trial_id for each in known if each.outcome is not None and each.outcome.final})
    if dry_run:
        say("nothing was written")
        return
    resume(str(folder.root), driver, address, changed_code=changed_code)


def _split(asked: Sequence[str]) -> tuple[Path | None, list[str]]:
    """Split arguments into the path of a spec, if the first one is a path, and overrides."""
    if asked and "=" not in asked[0]:
        return Path(asked[0]), list(asked[1:])
    return None, list(asked)


def _options(plan: "Plan", records: "Sequence[Record]", seeds: str | None, trials: int | None) -> list[str]:
    """Return the overrides for `--seeds` and `--trials`."""
    found = [] if trials is None else [f"search.trials_per_arm={trials}"]
    if seeds is None:
        return found
    from orchestrator.identity import derive_seed
    from orchestrator.spec.kinds import MOST_SEEDS
    from orchestrator.spec.overrides import BadOverride, parse

    try:
        more = parse(f"seeds={seeds}").value
    except BadOverride as error:
        raise InputError(f"--seeds: {error}") from None
    known = plan.confirm.seeds[: len(plan.confirm.seeds) // plan.repeats] if plan.confirm is not None else ()
    if isinstance(more, int) and not isinstance(more, bool) and 1 <= more <= MOST_SEEDS:
        _refuse_twice(plan, records, "seeds", more)
        drawn = (derive_seed("confirm", number) for number in range(len(known) + more + len(known)))
        more = [seed for seed in drawn if seed not in known][:more]
    if not isinstance(more, list):
        raise InputError(
            f"--seeds must be how many, or a list of further ones such as '[105, 106]', got {seeds}"
        )
    return [*found, f"confirm.seeds={[*known, *more]}"]


def _repeat_options(plan: "Plan", records: "Sequence[Record]", repeats: int | None) -> list[str]:
    """Return the override for `--repeats`."""
    if repeats is None:
        return []
    if plan.search is None:
        raise InputError(f"--repeats must be of a sweep that searches, and {plan.name} has no search")
    _refuse_twice(plan, records, "repeats", repeats)
    return [f"search.repeats={plan.repeats + repeats}"]


def _refuse_twice(plan: "Plan", records: "Sequence[Record]", what: str, more: int) -> None:
    """Raise `InputError` if added seeds have not run yet, since a repeated command means the same seeds."""
    if not plan.extended:
        return
    launched = set(plan.extended[0].seeds)
    ended = {each.trial_id for each in records if each.outcome is not None and each.outcome.final}
    left = sum(
        each.phase == "confirm" and each.seed not in launched and each.trial_id not in ended
        for each in plan.trials
    )
    if left:
        raise InputError(
            f"--{what} {more} adds further {what}, and must wait for those that were added before: "
            f"{amount(left, 'confirm trial')} of them have not ended. `haltsweep resume {plan.name}` goes on "
            f"with them"
            + "; for others beside them give a list, e.g. --seeds '[105, 106]'"
            * (what == "seeds")
        )


def _split_options(plan: "Plan", splits: str | None) -> list[str]:
    """Return the override for `--splits`."""
    from orchestrator.spec.overrides import render

    if splits is None:
        return []
    known = plan.confirm.splits if plan.confirm is not None else ()
    more = [each for each in filter(None, map(str.strip, splits.split(","))) if each not in known]
    if not more or plan.confirm is None:
        why = (
            "has no confirm trials" if plan.confirm is None else f"reads {', '.join(known) or 'none'} already"
        )
        raise InputError(
            f"--splits must name test splits that are new to a sweep with confirm trials, got {splits!r}, "
            f"and {plan.name} {why}"
        )
    return [render("confirm.splits", [*known, *dict.fromkeys(more)])]


def _refuse_unplanned(
    folder: SweepFolder, old: "Plan", changes: Sequence[str], profile: str | None, begun: "Begun"
) -> None:
    """Raise `InputError` for forbidden changes of the sweep's own spec, before the slow planning.

    Another spec can only be checked after planning, which adds results of other sweeps to it.
    """
    from orchestrator.plan.extension.extending import changes_allowed
    from orchestrator.spec.load import load_spec

    read_edition(folder.spec, "restore it from a backup")
    kept = find_edition(folder.spec)
    before, after = load_spec(kept).content(), load_spec(kept, changes, profile).content()
    changes_allowed(old.name, before, after, begun)


def _planned(
    folder: SweepFolder, path: Path | None, changes: Sequence[str], profile: str | None, runs: Path | None
) -> "tuple[SpecFile, Plan]":
    """Return the extended spec and its plan, as for a launch."""
    from orchestrator.cli.planning import planned
    from orchestrator.execution.sweep.launch_folder import read_setup
    from trainables.custom.extensions import look_in

    read_edition(folder.spec, "restore it from a backup")
    if (code := read_setup(folder).code) is not None:
        look_in(Path(code))
    asked = path or find_edition(folder.spec)
    return planned(asked, changes, profile, runs=runs)


def _extended(
    folder: SweepFolder,
    old: "Plan",
    spec: "SpecFile",
    new: "Plan",
    *,
    write: bool,
    changed_code: bool,
    on_fenced: "OnFenced | None",
) -> "Plan":
    """Return the extended plan, and write it if `write` is True. Raise `InputError` if forbidden."""
    from orchestrator.execution.checkpoints.checkpoint_checks import require_checkpoints
    from orchestrator.execution.code_digests import collect_provenance, require_same_code
    from orchestrator.execution.datasets import require_unchanged
    from orchestrator.execution.sweep.extend_folder import commit_extension
    from orchestrator.execution.sweep.launch_folder import read_setup, refuse_copy
    from orchestrator.ledger.fold import records
    from orchestrator.ledger.lease import Holder
    from orchestrator.ledger.store import Ledger
    from orchestrator.plan.extension.extending import changes_allowed, extended
    from orchestrator.plan.serialise import read_plan
    from orchestrator.spec.load import load_spec, to_yaml

    setup = read_setup(folder)
    refuse_copy(folder, setup)
    with Ledger.open(setup.ledger_url(folder), old.name) as ledger:
        # Hold the lease, since no session may continue with the old plan.
        lease = ledger.claim(Holder.current(), on_fenced=on_fenced) if write else None
        try:
            if read_plan(folder) != old:
                raise StoreError(f"{old.name} was extended by somebody else meanwhile; try again")
            known = records(ledger.newest(), old)
            before = load_spec(find_edition(folder.spec)).content()
            allowed = changes_allowed(old.name, before, spec.spec.content(), _begun(old, known))
            more = _extension(old, known, [str(each) for each in allowed])
            never = {each.trial_id for each in known if _unreadable(each)}
            made = extended(old, new, {each.trial_id for each in known}, more, never)
            require_checkpoints(folder, setup.checkpoints, made, known)
            origin = collect_provenance(made, setup)
            if not changed_code:
                require_same_code(old, known, origin)
            if write:
                if not changed_code:
                    require_unchanged(old, known, setup)
                commit_extension(folder, made, to_yaml(spec.spec), origin)
        finally:
            if lease is not None:
                ledger.release(lease)
    return made


def _unreadable(record: "Record") -> bool:
    """Return whether the trial ended without a checkpoint that can be re-evaluated."""
    from orchestrator.trials import OutcomeKind

    kind = record.outcome
    return kind is not None and kind.final and kind is not OutcomeKind.FINISHED


def _begun(plan: "Plan", known: "Sequence[Record]") -> "Begun":
    from orchestrator.plan.extension.extension_rules import Begun

    phases = {each.phase for each in known}
    decides = plan.confirm is not None and plan.confirm.stop is not None
    return Begun("search" in phases, "confirm" in phases, decides, plan.trainable is not None)


def _extension(plan: "Plan", known: "Sequence[Record]", changes: Sequence[str]) -> "Extension":
    from orchestrator.files.redact import redact_arguments
    from orchestrator.plan.types import Extension

    seen = {
        (each.arm, each.seed)
        for each in known
        if each.phase == "confirm" and each.outcome is not None and each.last is not None
    }
    return Extension(
        at=time.time(),
        by=shlex.join(redact_arguments(sys.argv)),
        spec_digest=plan.spec_digest,
        changes=tuple(changes),
        arms=tuple(arm.name for arm in plan.arms),
        seeds=plan.confirm.seeds if plan.confirm is not None else (),
        seen=dict(sorted(Counter(arm for arm, _ in seen).items())),
    )


def _tell(old: "Plan", made: "Plan", ended: "Collection[str]") -> None:
    """Print the added trials, the unended earlier trials, and the effect on claims.

    Args:
        old: Plan before the extension.
        made: Plan after the extension.
        ended: Ids of trials with a final outcome.
    """
    extension = made.extended[-1]
    for change in extension.changes:
        say(change)
    known = {each.trial_id for each in old.trials}
    added = Counter(each.phase for each in made.trials if each.trial_id not in known)
    what = ", ".join(f"{count} {phase}" for phase, count in added.items())
    say(
        f"{made.name}: {amount(sum(added.values()), 'trial')} to run beside {len(known):,}"
        + (f" ({what})" if what else "")
    )
    if left := known.difference(ended):  # for example after a used-up budget was raised
        say(f"{len(left):,} of those {len(known):,} have not ended: what may still run of them goes on too")
    if extension.seen and added["confirm"]:
        complain(
            "confirm trials have been seen before these were asked for: claims that rest on both are marked "
            "exploratory in the report"
        )


def arms_of(path: Path | None, names: str, folder: SweepFolder, profile: str | None = None) -> list[str]:
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

    wanted = list(dict.fromkeys(filter(None, map(str.strip, names.split(",")))))
    if path is None or not wanted:
        raise InputError(
            "--arms must name arms of a SPEC that is given too, as in `extend NAME SPEC --arms wide,deep`, "
            f"got {names!r}{'' if path else ' without SPEC'}; an arm without a spec is written out: "
            "'arms.wide={why: more room, set: {model.width: 128}}'"
        )
    asked = load_spec(path, profile=profile).content()
    known = asked.get("arms", {})
    for name in wanted:
        if name not in known:
            raise InputError(
                f"--arms must name arms under `arms` of {path}, got {name!r}. {hint(name, known)}"
            )
    kept = load_spec(find_edition(folder.spec)).content()
    other = [str(each) for each in differences(kept["baseline"], asked["baseline"])]
    if other:
        complain(
            f"arms are changes of the baseline of {folder.name}, not of that in {path}, which differs: "
            + "; ".join(other)
        )
    return [render(f"arms.{name}", known[name]) for name in wanted]
