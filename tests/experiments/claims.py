"""Claims of papers beside what committed studies measured of them: the table of experiments/README.md.

`python -m tests.experiments.claims` prints it. A study is a folder of `experiments/findings` with its
`spec.yaml`, `report.md` and `claims.toml`, and in `sweep` what its report is computed from: plan and records.
"""

import tomllib
from functools import cache
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, TypeAdapter, model_validator

from orchestrator.identity import SweepFolder
from orchestrator.plan.serialise import read_plan
from orchestrator.report.statistics import Estimate, estimate
from orchestrator.report.summary import summarise
from orchestrator.report.types import Cell, Effect, Report, interval_words
from orchestrator.tracking.parquet import read_records
from tests.experiments.tables import EXPERIMENTS

FINDINGS = EXPERIMENTS / "findings"
HEADERS = ("claim", "published", "measured here", "seeds", "core hours", "verdict")
SECONDS_PER_HOUR = 3600


class Bounds(BaseModel):
    """Where a mean or ratio must lie for the claim to hold."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    at_least: float = -float("inf")
    at_most: float = float("inf")


class Claim(BaseModel):
    """What a paper says, in terms of one number of a study."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    claim: str
    source: str
    published: str
    """The paper's own figures, or that it prints none."""
    arm: str
    metric: str
    """`<split>/<quantity>`."""
    setting: str = ""
    """The reading after training, e.g. `model.stop=batch`; empty as trained."""
    over: str = ""
    """The arm by whose value, seed by seed, that of `arm` is divided."""
    minus: Literal["reference", "as trained", ""] = ""
    """What is subtracted, seed by seed."""
    expected: Bounds

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.over and self.minus:
            raise ValueError(f"a claim is of a ratio or of a difference, got {self.over=} and {self.minus=}")
        return self


def studies() -> list[Path]:
    """The folders of all studies that are done, by name."""
    return sorted(each.parent for each in FINDINGS.glob("*/sweep"))


def claims(study: Path) -> list[Claim]:
    """What a study was to show. Raises pydantic's ValidationError for anything else."""
    return TypeAdapter(list[Claim]).validate_python(
        tomllib.loads((study / "claims.toml").read_text())["claim"]
    )


@cache
def report(study: Path) -> Report:
    """Computed anew from the committed plan and records."""
    folder = SweepFolder(study / "sweep")
    return summarise(read_plan(folder), read_records(folder))


def measured(found: Report, claim: Claim) -> Estimate:
    """The claim's number, with an interval over seeds. Raises LookupError if the study has none."""
    if claim.minus == "reference":
        return _effect(found, claim).estimate
    if claim.minus == "as trained":
        key = (claim.arm, claim.setting, claim.metric)
        return next(e.estimate for e in found.setting_effects if (e.arm, e.setting, e.metric) == key)
    if claim.over:
        ours, theirs = (dict(_cell(found, claim, arm).by_seed) for arm in (claim.arm, claim.over))
        return estimate([ours[seed] / theirs[seed] for seed in sorted(ours.keys() & theirs.keys())])
    return _cell(found, claim, claim.arm).estimate


def _effect(found: Report, claim: Claim) -> Effect:
    effect = found.effect(claim.arm, claim.metric)
    if effect is None:
        raise LookupError(f"no difference of {claim.arm} in {claim.metric}")
    return effect


def _cell(found: Report, claim: Claim, arm: str) -> Cell:
    cells = found.posthoc if claim.setting else found.cells
    matching = [e for e in cells if (e.arm, e.metric, e.setting) == (arm, claim.metric, claim.setting)]
    if not matching:
        raise LookupError(f"no {claim.metric} of {arm} with {claim.setting!r}")
    return matching[0]


def verdict(known: Estimate, expected: Bounds) -> str:
    """Agrees or contradicts where the whole interval does; else undecided."""
    if known.low is None or known.high is None:
        return "undecided"
    if known.low >= expected.at_least and known.high <= expected.at_most:
        return "agrees"
    if known.high < expected.at_least or known.low > expected.at_most:
        return "contradicts"
    return "undecided"


def row(study: Path, claim: Claim) -> tuple[str, ...]:
    """One line of the table."""
    found = report(study)
    known = measured(found, claim)
    hours = sum(each.seconds for each in found.tallies) / SECONDS_PER_HOUR
    what = f"`{claim.arm}`"
    if claim.over:
        what += f" / `{claim.over}`"
    elif claim.minus == "as trained":
        what += " minus the same as trained"
    elif claim.minus:
        what += f" minus `{_effect(found, claim).reference}`"
    reading = f", {claim.setting}" if claim.setting else ""
    primary = claim.minus == "reference" and claim.metric in found.outcomes and not found.extensions
    return (
        f"{claim.claim} ({claim.source})",
        claim.published,
        f"{what}, {claim.metric}{reading}: {interval_words(known, '+' if claim.minus else '')}"
        + ("" if primary else " (exploratory)"),
        str(known.n),
        f"{hours:.1f} for all of [{study.name}](findings/{study.name}/report.md)",
        f"**{verdict(known, claim.expected)}**",
    )


def table() -> str:
    """Markdown."""
    rows = [row(study, claim) for study in studies() for claim in claims(study)]
    lines = [HEADERS, tuple("---" for _ in HEADERS), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    print(table())
