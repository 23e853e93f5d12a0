"""report.json: all that the report and its page show, as numbers at full precision.

At its root lie the fields of `report.types.Report`, by name, and `notices`, what must be known before any
number, as sentences. `verdicts` holds the verdicts of every arm in its context, `pooled` those over all
contexts, and `contexts` the arms of each context. `warnings` holds warnings about single comparisons (code,
arm, outcome, text), and `interval_scope` what intervals and p values of differences cover. `page` holds what
the page shows beyond the tables, the fields of `report.details.Details`:

| key | holds |
|---|---|
| `sentences` | the words above the fold: one an arm, and what the sweep cost |
| `arms` | what every arm is, its parameters and FLOPs, how its trials ended, device seconds |
| `searches` | one an arm: objectives, dimensions, all trials as they ended, the best, and what follows |
| `curves` | learning curves: steps, mean, lowest and highest seed, seeds that failed |
| `costs` | outcomes against their costs, as trained and under other settings |
| `depths` | depth by split, where arms halt by themselves |
| `maps` | what halting does on single examples: words, layers and what was still open, in percent |
| `lengths` | depth by length of an example in tokens, arm by arm, inside each split |
| `operators` | the same by number of operators of an example |
| `experts` | how often each expert was chosen, by mixture, class of word and layer, and by which words |
| `origin` | provenance, as pairs of name and value |
| `listings` | installed packages, changes to the code: names and lines |
| `wall_clock_s` | from the first start of a trial to the last end of one |

What follows from the trials of a search: `best_so_far` (trials, device hours, value; where searches are
repeated of the first repeat, and `best_so_far_by_repeat` of each), `expected` (the best of
searches of fewer trials), `importance`, `edges`, `front`, `hypervolumes` (trials, volume), and `outcomes`,
how many ended how. Figures are drawn from the very same objects. Without details, where nobody had the
measurements, there is no `page`.
"""

import json
from collections import Counter
from dataclasses import asdict
from typing import Any

from orchestrator.plan.display.format import domain_words
from orchestrator.report.caveats.notices import notices
from orchestrator.report.results.details import Details
from orchestrator.report.results.searches import SearchCourse
from orchestrator.report.results.types import Report
from orchestrator.report.writers.page_sections import arms_answered, cost_words


def as_json(report: Report, details: Details | None = None) -> str:
    """Everything that the report holds and, with `details`, all that its page shows. See the module."""
    values: dict[str, Any] = asdict(report) | {"notices": notices(report)}
    if details is not None:
        values["page"] = _page(report, details)
    return json.dumps(values, indent=2, sort_keys=True, allow_nan=False) + "\n"


def _page(report: Report, details: Details) -> dict[str, Any]:
    values: dict[str, Any] = asdict(details)
    pairs = zip(values["searches"], details.searches, strict=True)
    values["searches"] = [made | _derived(course) for made, course in pairs]
    words = [line for _, line in arms_answered(report, details)]
    return values | {"sentences": [*words, cost_words(report, details)]}


def _derived(course: SearchCourse) -> dict[str, Any]:
    """What the page works out of the trials of a search."""
    return {
        "objectives": [
            {"metric": each.metric, "goal": each.goal, "scope": each.scope} for each in course.objectives
        ],
        "dimensions": {each.path: domain_words(each.domain) for each in course.dimensions},
        "best_so_far": course.best_so_far,
        "best_so_far_by_repeat": [course.best_so_far_in(repeat) for repeat in range(course.repeats)],
        "expected": [asdict(each) for each in course.expected],
        "outcomes": dict(sorted(Counter(each.outcome.value for each in course.trials).items())),
    }
