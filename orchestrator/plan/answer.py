"""Choose the primary outcomes of a sweep and check that they can decide its question."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from orchestrator.errors import FaultCode, HaltsweepError, SpecError
from orchestrator.plan.types import AnswerPlan, ConfirmPlan, Plan, SearchPlan
from orchestrator.spec.kinds import FROM_KEY, RESULT_KEY
from orchestrator.spec.metric_splits import SELECTION_SPLIT, MetricSplits, declared_split, outcome_split
from orchestrator.statistics.paired import LEVEL
from search_spaces.wording import format_value, hint
from trainables.metrics import Metric, look_up, metric_name, split_and_quantity, usual_goal

if TYPE_CHECKING:  # a report needs no spec, whose imports are slow
    from orchestrator.plan.faults import Faults
    from orchestrator.spec.load import SpecFile
    from orchestrator.spec.section import Objective
    from orchestrator.spec.types import Answer, Confirm, Search, Spec

Goal = Literal["max", "min"]
SpreadLookup = Callable[[str, str | None], float]
"""Function that returns the standard deviation over seeds of a sweep's baseline in a metric.

Without a metric, the function uses the sweep's primary outcome. Raises HaltsweepError without a spread.
"""
TEST_DATA_SELECTION_WARNING = (
    "Selection used test data: valid contains the examples of {splits}, and params, weights and the last "
    "step were selected on valid. So values on {splits} are optimistic estimates for new data. Compare "
    "them only with values that were selected in the same way."
)
"""Warning for a task whose valid split contains test examples."""


def better_direction(
    metric_info: Metric, metric: str, objectives: Sequence["Objective"], answer: AnswerPlan | None = None
) -> Goal | None:
    """Return whether high (`max`) or low (`min`) values of `metric` are better; None if unknown.

    Args:
        metric_info: Declaration of the metric.
        metric: Name of the metric.
        objectives: Search objectives; their goal counts if the metric declares no direction.
        answer: Answer settings; their goal for the main outcome takes precedence.
    """
    if answer is not None and answer.goal is not None and metric in answer.outcomes[:1]:
        return answer.goal
    goals = {split_and_quantity(objective.metric)[1]: objective.goal for objective in objectives}
    return metric_info.better or goals.get(split_and_quantity(metric)[1])


def outcomes_without_direction(plan: Plan) -> Iterator[str]:
    """Yield a sentence on each outcome of a custom trainable for which no better direction is known."""
    for place, name in enumerate(plan.outcomes if plan.trainable is not None else ()):
        if better_direction(look_up(plan.metrics, name), name, plan.objectives, plan.answer) is None:
            goal = usual_goal(name) or "max or min"
            remedy = f"write answer.goal: {goal}" if place == 0 else "declare it in the training code"
            yield (
                f"No declaration states whether large or small values of {name} are better, so its verdicts "
                f"are higher or lower; to get better or worse, {remedy}."
            )


def metric_splits(
    search: SearchPlan | None, confirm: ConfirmPlan | None, answer: AnswerPlan | None
) -> MetricSplits:
    """Return the splits of the metrics that a plan declares."""
    test = confirm.splits if confirm is not None else ()
    declared_splits = dict(_declared_splits(search, answer, test))
    return MetricSplits(declared_splits, test)


def _declared_splits(
    search: SearchPlan | None, answer: AnswerPlan | None, test: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    for metric in answer.outcomes if answer is not None else ():
        assert answer is not None
        yield metric, outcome_split(metric, answer.split, test)
    for objective in search.objectives if search is not None else ():
        yield objective.metric, declared_split(objective.metric, objective.split, test)


def answer_plan(
    answer: "Answer | None",
    confirm: ConfirmPlan,
    search: SearchPlan | None,
    metrics: Sequence[Metric],
    num_compared: int,
) -> AnswerPlan:
    """Return the requested answer, with defaults for missing fields.

    Args:
        answer: `answer` of the spec.
        confirm: Confirmation settings.
        search: Search settings, for the default outcome.
        metrics: Declared metrics, for the default outcome.
        num_compared: Number of comparisons per outcome.
    """
    primary = (answer.metric if answer else None) or default_outcome(confirm, search, metrics)
    outcomes = (*([primary] if primary else []), *(answer.also if answer else ()))
    level, margin = (answer.level, answer.margin) if answer else (LEVEL, None)
    family = num_compared * max(1, len(outcomes))
    split = (answer.split or "") if answer else ""
    pooled, moderated = bool(answer and answer.pool), bool(answer and answer.variance)
    goal = answer.goal if answer else None
    return AnswerPlan(
        outcomes, margin, level, family, pooled=pooled, split=split, moderated=moderated, goal=goal
    )


def default_outcome(
    confirm: "ConfirmPlan | Confirm", search: "SearchPlan | Search | None", metrics: Sequence[Metric]
) -> str | None:
    """Return the headline quantity on the first confirm split; None if none is declared."""
    headline = next((metric for metric in metrics if "headline" in metric.shown), None)
    if headline is not None and headline.split:
        return metric_name(headline.split, headline.name)
    objectives = search.objectives if search else ()
    names = [headline.name] if headline else []
    names += filter(None, (_quantity_on_other_splits(entry, confirm.splits) for entry in objectives))
    names += [metric.name for metric in metrics if not metric.split]
    splits = [*confirm.splits, *([] if search else [SELECTION_SPLIT])]
    return metric_name(splits[0], names[0]) if names and splits else None


def _quantity_on_other_splits(objective: "Objective", test_splits: Sequence[str]) -> str:
    """Return the quantity of an objective whose name begins with its split.

    Empty for names like `eval_loss`.
    """
    split, quantity = split_and_quantity(objective.metric)
    return quantity if split == declared_split(objective.metric, objective.split, test_splits) else ""


def with_spread(source: "SpecFile", spread_of: SpreadLookup) -> "SpecFile":
    """Return `source` with the spread filled in if the spec takes it from another sweep.

    The stored spec then contains the value used for planning, even if the other sweep changes later.

    Raises:
        SpecError: The other sweep has no such spread.
    """
    answer = source.spec.answer
    spread = answer.spread if answer else None
    if answer is None or not isinstance(spread, Mapping) or RESULT_KEY in spread:
        return source
    try:
        filled_spread = {**spread, RESULT_KEY: spread_of(spread[FROM_KEY], answer.metric)}
    except HaltsweepError as error:
        fault = source.fault(str(error), "answer", "spread", code=FaultCode.UNKNOWN_NAME)
        raise SpecError([fault]) from error
    answer_with_spread = answer.model_copy(update={"spread": filled_spread})
    return replace(source, spec=source.spec.model_copy(update={"answer": answer_with_spread}))


def check_answer(
    spec: "Spec", metrics: Sequence[Metric], metric_names: Iterable[str], faults: "Faults"
) -> None:
    """Add faults for primary outcomes that are not measured or cannot differ.

    Args:
        spec: The spec.
        metrics: Declared metrics.
        metric_names: Names of the metrics that a trial reports in training; empty if unknown.
        faults: Collects the problems.
    """
    answer = spec.answer
    if answer is None:
        return
    known_names = sorted({name for metric in metric_names for name in _on_splits(metric, spec)})
    for keys, name in primary_outcomes(answer):
        if known_names and name not in known_names:
            message = f"no metric named {name!r}. {hint(name, known_names)}"
            faults.add(message, "answer", *keys, code=FaultCode.UNKNOWN_NAME)
        elif (given_by := look_up(metrics, name).given) != "":
            message = f"must differ between arms, got {name}, which {given_by}"
            faults.add(message, "answer", *keys, code=FaultCode.METRIC_DOES_NOT_VARY)
    default = default_outcome(spec.confirm, spec.search, metrics) if spec.confirm is not None else None
    primary = answer.metric or default or ""
    _check_goal(answer, primary, spec, metrics, faults)
    low, high = look_up(metrics, primary).span
    limits: dict[str, Any] = {"margin": answer.margin, "spread": answer.spread}
    for key, given_by in limits.items():
        if isinstance(given_by, int | float) and given_by >= high - low:
            requirement = f"smaller than {high - low:g}, the whole range of {primary}"
            faults.add(f"must be {requirement}, got {format_value(given_by)}", "answer", key)


def _check_goal(
    answer: "Answer", primary: str, spec: "Spec", metrics: Sequence[Metric], faults: "Faults"
) -> None:
    """Add a fault for an `answer.goal` without an outcome, or against the declared direction."""
    if answer.goal is None:
        return
    if not primary:
        message = "needs answer.metric, since the training code declares no metrics: name the metric there"
        faults.add(message, "answer", "goal", code=FaultCode.CONFLICTING_FIELDS)
        return
    known = better_direction(look_up(metrics, primary), primary, spec.objectives)
    if known not in (None, answer.goal):
        source = "the metric declares" if look_up(metrics, primary).better else "search.objectives has"
        message = f"must be {known}, as {source} for {primary}, got {answer.goal}"
        faults.add(message, "answer", "goal", code=FaultCode.CONFLICTING_FIELDS)


def check_stop(
    spec: "Spec",
    confirm: ConfirmPlan | None,
    search: SearchPlan | None,
    metrics: Sequence[Metric],
    faults: "Faults",
) -> None:
    """Add a fault for a `confirm.stop` if no primary outcome can decide an arm."""
    if confirm is None or confirm.stop is None or (spec.answer and spec.answer.metric):
        return
    if default_outcome(confirm, search, metrics) is None:
        message = "requires a primary outcome, but no metric is declared: set answer.metric"
        faults.add(message, "confirm", "stop", code=FaultCode.CONFLICTING_FIELDS)


def _on_splits(full_name: str, spec: "Spec") -> list[str]:
    """Return a validation metric on all splits; any other metric unchanged."""
    split, quantity = split_and_quantity(full_name)
    if split != SELECTION_SPLIT:
        return [full_name]
    return [metric_name(name, quantity) for name in (*spec.test_splits, SELECTION_SPLIT)]


def primary_outcomes(answer: "Answer") -> list[tuple[tuple[str | int, ...], str]]:
    """Return the primary outcomes of `answer`, each after its keys in the spec."""
    primary: list[tuple[tuple[str | int, ...], str]] = [(("metric",), answer.metric)] if answer.metric else []
    return [*primary, *((("also", place), name) for place, name in enumerate(answer.also))]
