"""Write report.json: the full content of the report and its page, as numbers at full precision.

At the root are the fields of `report.results.types.Report`, by name, and two more: `notices`, the warnings
printed before the results, and `summary`, a summary of the verdicts. Some of the fields:

| key | content |
|---|---|
| `verdicts` | the verdicts of every arm in its context |
| `pooled` | the verdicts over all contexts |
| `contexts` | the arms of each context |
| `warnings` | warnings about single comparisons: code, arm, outcome, text |
| `interval_scope` | what intervals and p-values of differences cover |
| `page` | the content of the page beyond the tables |

The fields of `page` are those of `report.results.details.Details`, and `sentences`:

| key | content |
|---|---|
| `sentences` | the sentences at the top of the page: one per arm, and the cost of the sweep |
| `arms` | reason, reference, parameters and FLOPs of each arm, how its trials ended, device seconds |
| `searches` | one per arm: objectives, dimensions, all trials as they ended, the best, derived values |
| `curves` | learning curves: steps, mean, lowest and highest seed, seeds that failed |
| `costs` | outcomes against their costs, as trained and under other settings |
| `depths` | depth by split, for arms that halt |
| `maps` | halting on single examples: words, layers and the open share in percent |
| `lengths` | depth by length of an example in tokens, arm by arm, inside each split |
| `operators` | depth by number of operators of an example, arm by arm, inside each split |
| `experts` | how often each expert was chosen, by mixture, class of word and layer; words that chose it |
| `origin` | provenance, as pairs of name and value |
| `listings` | installed packages, changes to the code: names and lines |
| `wall_clock_s` | seconds from the first start of a trial to the last end of one |

Values derived from the trials of a search:

- `best_so_far`: trials, device hours and value, in the first repeat.
- `best_so_far_by_repeat`: the same values of each repeat.
- `expected`: the expected best of searches with fewer trials.
- `importance`, `edges`, `front`.
- `hypervolumes`: trials and volume.
- `outcomes`: number of trials by outcome.

The figures of the report show the same values. The key `page` is missing if the report was created without
the measurements of the trials.
"""

import json
from collections import Counter
from dataclasses import asdict
from typing import Any

from orchestrator.plan.display.format import domain_words
from orchestrator.report.caveats.warning_texts import warning_texts
from orchestrator.report.comparisons.answer_summary import answer_summary
from orchestrator.report.results.details import Details
from orchestrator.report.results.searches import SearchHistory
from orchestrator.report.results.types import Report
from orchestrator.report.writers.page_sections import arm_reasons, arm_sentences, cost_sentence


def as_json(report: Report, details: Details | None = None) -> str:
    """Return the report as JSON, with the data of its page if `details` is given; see the module."""
    summary = answer_summary(report, arm_reasons(details))
    values: dict[str, Any] = asdict(report) | {"notices": warning_texts(report), "summary": summary}
    if details is not None:
        values["page"] = _page_values(report, details)
    return json.dumps(values, indent=2, sort_keys=True, allow_nan=False) + "\n"


def _page_values(report: Report, details: Details) -> dict[str, Any]:
    values: dict[str, Any] = asdict(details)
    pairs = zip(values["searches"], details.searches, strict=True)
    values["searches"] = [search_values | _derived_values(course) for search_values, course in pairs]
    words = [line for _, line in arm_sentences(report, details)]
    return values | {"sentences": [*words, cost_sentence(report, details)]}


def _derived_values(course: SearchHistory) -> dict[str, Any]:
    """Return the values that are derived from the trials of a search."""
    return {
        "objectives": [
            {"metric": objective.metric, "goal": objective.goal, "scope": objective.scope}
            for objective in course.objectives
        ],
        "dimensions": {dimension.path: domain_words(dimension.domain) for dimension in course.dimensions},
        "best_so_far": course.best_so_far,
        "best_so_far_by_repeat": [course.best_so_far_of_repeat(repeat) for repeat in range(course.repeats)],
        "expected": [asdict(expectation) for expectation in course.expected_bests],
        "outcomes": dict(sorted(Counter(trial.outcome.value for trial in course.trials).items())),
    }
