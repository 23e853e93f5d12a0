"""What a run has shown, as a table."""

from collections import Counter
from collections.abc import Sequence

from tests.faults.soak.rounds import Result
from tests.faults.soak.schedule import WEIGHTS

MOST_LINES = 40


def summary(results: Sequence[Result], lingering: Sequence[str]) -> tuple[str, bool]:
    """Markdown, and whether all is well."""
    killed, ended, redone, allowed = (
        sum((getattr(each, name) for each in results), Counter[str]())
        for name in ("killed", "ended", "redone", "allowed")
    )
    lines = [
        "| killed | kills | sessions that ended with it | steps redone | at most, by checkpoint intervals |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    lines += [
        f"| {kind} | {killed[kind]} | {ended[kind]} | {redone[kind]} | {allowed[kind]} |"
        for kind in WEIGHTS
        if killed[kind]
    ]
    totals = [str(each.total()) for each in (killed, ended, redone, allowed)]
    lines.append(f"| all | {' | '.join(totals)} |")
    found = {
        sort: [f"round {each.number} ({each.scene}): {line}" for each in results for line in each.found[sort]]
        for sort in (results[0].found if results else ())
    }
    found.setdefault("leftover", []).extend(lingering)
    figures = {
        "sweeps": len(results),
        "trials": sum(each.trials for each in results),
        "steps": sum(each.steps for each in results),
        **{sort: len(each) for sort, each in found.items()},
        "caught up by sync": sum(each.untracked for each in results),
        "seconds of sweeps": round(sum(each.seconds for each in results)),
    }
    lines += [
        "",
        "| figure | |",
        "| --- | ---: |",
        *(f"| {name} | {value} |" for name, value in figures.items()),
    ]
    faults = [f"{sort}: {line}" for sort, each in found.items() for line in each]
    lines += ["", *faults[:MOST_LINES]]
    if len(faults) > MOST_LINES:
        lines.append(f"... and {len(faults) - MOST_LINES} more")
    return "\n".join(lines), not faults
