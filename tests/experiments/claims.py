"""Claims of papers and the results of committed studies: the table of experiments/README.md.

`python -m tests.experiments.claims` prints the table. A study is a folder of `experiments/findings` with
`spec.yaml`, `report.md` and `claims.toml`. Its folder `sweep` has the plan and the records of the report.
"""

import tomllib
from functools import cache
from math import inf
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

from orchestrator.identity import SweepFolder
from orchestrator.plan.serialise import read_plan
from orchestrator.report.results.number_formats import format_interval
from orchestrator.report.results.statistics import Estimate, estimate
from orchestrator.report.results.summary import summarise
from orchestrator.report.results.types import ArmResult, Effect, Report
from tests.experiments.tables import EXPERIMENTS
from tests.support.stores.parquet_records import read_records

FINDINGS = EXPERIMENTS / "findings"
HEADERS = (
    "claim",
    "published",
    "measured here",
    "seeds",
    "at training lengths",
    "written",
    "direction",
    "size",
    "study",
)
SECONDS_PER_HOUR = 3600
LEVEL = 0.05
LEARNT_SHARE = 0.95
"""An arm has learnt its training data if its mean accuracy at training lengths is at least this share of the
published one. Written on 29 November 2026, after all studies of that day."""
NO_VERDICT = "no verdict"
COMMIT_TIMES = {"before": "before the data", "after": "after the data", "with": "committed with the data"}


class Bounds(BaseModel):
    """Interval in which a mean or ratio agrees with the claim; it has two ends if the claim is equality."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    at_least: float = -inf
    at_most: float = inf


class Claim(BaseModel):
    """A statement of a paper about one number of a study."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    claim: str
    source: str
    published: str
    """The figures of the paper, or a statement that it prints none."""
    published_value: float | None = None
    """The published difference, ratio or value in the unit of `metric`, if the paper prints it."""
    arm: str
    metric: str
    """Name of the metric, `<split>/<quantity>`."""
    setting: str = ""
    """The setting of a re-evaluation, e.g. `model.stop=batch`; empty for the trained settings."""
    over: str = ""
    """The arm whose values divide the values of `arm`, seed by seed."""
    minus: Literal["reference", "as trained", ""] = ""
    """The arm whose values are subtracted, seed by seed."""
    expected: Bounds
    written: Literal["before", "after", "with"]
    """Whether the claim was committed before the data, after them, or in one commit with them, which does not
    show when it was written."""

    @model_validator(mode="after")
    def _divides_or_subtracts(self) -> Self:
        if self.over and self.minus:
            raise ValueError(f"a claim is of a ratio or of a difference, got {self.over=} and {self.minus=}")
        return self

    @property
    def on_longer_inputs(self) -> bool:
        """Return whether the split contains longer inputs than the training data."""
        return self.metric.startswith("length-")


class Learnt(BaseModel):
    """Evidence that an arm has learnt its training data."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    metric: str
    """Metric of accuracy at training lengths."""
    published: dict[str, float]
    """Published accuracy at training lengths, by arm."""


class Claims(BaseModel):
    """The file `claims.toml` of a study."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    learnt: Learnt | None = None
    claim: list[Claim]


def studies() -> list[Path]:
    """Return the folders of all finished studies, by name."""
    return sorted(path.parent for path in FINDINGS.glob("*/sweep"))


@cache
def claims(study: Path) -> Claims:
    """Return the claims that a study tests. Raises pydantic's ValidationError for a faulty file."""
    return Claims.model_validate(tomllib.loads((study / "claims.toml").read_text()))


@cache
def report(study: Path) -> Report:
    """Compute the report from the committed plan and records."""
    folder = SweepFolder(study / "sweep")
    return summarise(read_plan(folder), read_records(folder))


def is_primary(study_report: Report, claim: Claim) -> bool:
    """Return whether the report itself corrects the interval: a primary outcome that was not extended."""
    return (
        claim.minus == "reference" and claim.metric in study_report.outcomes and not study_report.extensions
    )


def estimate_claim(study_report: Report, claim: Claim, family: int) -> Estimate:
    """Return the number of a claim, with an interval over seeds.

    Args:
        study_report: The report of the study.
        claim: A claim about the study.
        family: By how much the level of an exploratory interval is divided (Bonferroni). The report corrects
            intervals of primary outcomes.

    Raises:
        LookupError: The study has no such number.
    """
    if is_primary(study_report, claim):
        return _effect(study_report, claim).estimate
    values_by_seed = dict(_cell(study_report, claim.arm, claim.metric, claim.setting).by_seed)
    low, high = (0.0, 1.0) if "accuracy" in claim.metric else (-inf, inf)
    if claim.over:
        divisors = dict(_cell(study_report, claim.over, claim.metric, claim.setting).by_seed)
        values = [
            values_by_seed[seed] / divisors[seed] for seed in sorted(values_by_seed.keys() & divisors.keys())
        ]
    elif claim.minus:
        arm = claim.arm if claim.minus == "as trained" else _effect(study_report, claim).reference
        divisors = dict(_cell(study_report, arm, claim.metric, "").by_seed)
        values = [
            values_by_seed[seed] - divisors[seed] for seed in sorted(values_by_seed.keys() & divisors.keys())
        ]
        low, high = low - high, high - low
    else:
        values = [value for _, value in sorted(values_by_seed.items())]
    return estimate(values, level=1 - LEVEL / family, span=(low, high))


def family_of(study: Path) -> int:
    """Return the number of exploratory claims of a study, times the number of looks if it was extended."""
    study_report = report(study)
    looks = max(1, len(study_report.extensions))  # a line an extension, and one more that counts the looks
    return looks * sum(not is_primary(study_report, verdict) for verdict in claims(study).claim)


def at_training_lengths(study: Path, claim: Claim) -> dict[str, tuple[float, bool]]:
    """Return by arm of a claim the accuracy at training lengths, and whether it is high enough."""
    learnt = claims(study).learnt
    if not claim.on_longer_inputs or learnt is None:
        return {}
    study_report = report(study)
    other_arm = _effect(study_report, claim).reference if claim.minus == "reference" else claim.over
    means = {
        arm: _cell(study_report, arm, learnt.metric, "").estimate.mean
        for arm in dict.fromkeys((claim.arm, other_arm))
        if arm
    }
    return {arm: (mean, mean >= LEARNT_SHARE * learnt.published[arm]) for arm, mean in means.items()}


def _effect(study_report: Report, claim: Claim) -> Effect:
    effect = study_report.effect(claim.arm, claim.metric)
    if effect is None:
        raise LookupError(f"no difference of {claim.arm} in {claim.metric}")
    return effect


def _cell(study_report: Report, arm: str, metric: str, setting: str) -> ArmResult:
    cells = study_report.posthoc if setting else study_report.cells
    matching = [cell for cell in cells if (cell.arm, cell.metric, cell.setting) == (arm, metric, setting)]
    if not matching:
        raise LookupError(f"no {metric} of {arm} with {setting!r}")
    return matching[0]


def direction(estimate_: Estimate, expected: Bounds) -> str:
    """Return agrees or contradicts where the whole interval does, else undecided."""
    if estimate_.low is None or estimate_.high is None:
        return "undecided"
    if estimate_.low >= expected.at_least and estimate_.high <= expected.at_most:
        return "agrees"
    if estimate_.high < expected.at_least or estimate_.low > expected.at_most:
        return "contradicts"
    return "undecided"


def size(estimate_: Estimate, published: float | None) -> str:
    """Return whether the published number lies inside the interval."""
    if published is None:
        return "not printed"
    if estimate_.low is None or estimate_.high is None:
        return "undecided"
    return "inside" if estimate_.low <= published <= estimate_.high else "outside"


def row(study: Path, claim: Claim) -> tuple[str, ...]:
    """Return one line of the table."""
    study_report, family = report(study), family_of(study)
    estimate_ = estimate_claim(study_report, claim, family)
    hours = sum(tally.seconds for tally in study_report.tallies) / SECONDS_PER_HOUR
    description = f"`{claim.arm}`"
    if claim.over:
        description += f" / `{claim.over}`"
    elif claim.minus == "as trained":
        description += " minus the same as trained"
    elif claim.minus:
        description += f" minus `{_effect(study_report, claim).reference}`"
    reading = f", {claim.setting}" if claim.setting else ""
    mark = "" if is_primary(study_report, claim) else f" (exploratory, level {LEVEL:g}/{family})"
    learnt = at_training_lengths(study, claim)
    verdicts = direction(estimate_, claim.expected), size(estimate_, claim.published_value)
    if not all(has_learnt for _, has_learnt in learnt.values()):
        verdicts = (NO_VERDICT, NO_VERDICT)
    sign = "+" if claim.minus else ""
    return (
        f"{claim.claim} ({claim.source})",
        claim.published,
        f"{description}, {claim.metric}{reading}: {format_interval(estimate_, sign)}{mark}",
        str(estimate_.n),
        ", ".join(
            f"`{arm}` {mean:.3f}{'' if has_learnt else ' (not learnt)'}"
            for arm, (mean, has_learnt) in learnt.items()
        ),
        COMMIT_TIMES[claim.written],
        *(f"**{verdict}**" for verdict in verdicts),
        f"[{study.name}](findings/{study.name}/report.md), {hours:.1f} core hours",
    )


def table() -> str:
    """Return the Markdown table."""
    rows = [row(study, claim) for study in studies() for claim in claims(study).claim]
    lines = [HEADERS, tuple("---" for _ in HEADERS), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


if __name__ == "__main__":
    print(table())
