"""`haltsweep extend NAME SPEC --arms a,b`: some arms of a spec, as overrides of the spec that a sweep has."""

from pathlib import Path

from orchestrator.cli.console import complain
from orchestrator.errors import InputError
from orchestrator.file_digests import kept_file
from orchestrator.identity import SweepFolder
from search_spaces.wording import hint


def arms_of(path: Path | None, names: str, folder: SweepFolder, profile: str | None = None) -> list[str]:
    """`arms.NAME={...}` for each of `names`, a list with commas, as the spec at `path` has it.

    An arm is a change of the sweep's baseline, not of the one beside it: where these differ it is told.
    Raises InputError, SpecError.
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
    kept = load_spec(kept_file(folder.spec)).content()
    other = [str(each) for each in differences(kept["baseline"], asked["baseline"])]
    if other:
        complain(
            f"arms are changes of the baseline of {folder.name}, not of that in {path}, which differs: "
            + "; ".join(other)
        )
    return [render(f"arms.{name}", known[name]) for name in wanted]
