"""Display a plan before its launch: changes of each arm, cost estimates, and detectable effects."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import zip_longest

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from orchestrator.plan.ablation_check.passes import EXAMPLES, LENGTH
from orchestrator.plan.ablation_check.probe import LAYERS, NARROW
from orchestrator.plan.answer import SEEN, outcomes_without_direction
from orchestrator.plan.budget import budget_lines
from orchestrator.plan.display.format import (
    bytes_amount,
    change_words,
    condition_words,
    count,
    domain_words,
    duration,
    format_amount,
    signed,
    value_words,
)
from orchestrator.plan.planned_trials import CONFIRM, CROSS, POSTHOC, SEARCH, num_points
from orchestrator.plan.power import rounds_sentence
from orchestrator.plan.readings.published_rows import name_of, rows_without_evaluation
from orchestrator.plan.report_counts import idle_patience_warnings
from orchestrator.plan.space_check.objective_descriptions import objective_lines, reversed_goal_warnings
from orchestrator.plan.training_code.device_choices import device_lines
from orchestrator.plan.training_code.script_warnings import script_warnings
from orchestrator.plan.training_code.settings import differences
from orchestrator.plan.types import Arm, ArmCheck, ArmEstimate, Change, Plan
from orchestrator.spec.checks import BASELINE
from orchestrator.spec.placeholders import QUESTION, WHY
from search_spaces.dimensions import Assignment, Float, Predicate, Space, contains, same
from search_spaces.paths import MISSING, leaves, lookup
from search_spaces.wording import amount as counted
from trainables.custom.extensions import num_started_threads
from trainables.custom.source_files import script_command
from trainables.metrics import split_and_quantity

MEANT_FALSE = {"no", "off", "false"}
"""Texts that were probably meant as false, but are non-empty and therefore true in Python.

YAML 1.2 reads `no` and `off` as texts even without quotes.
"""
CONTEXT_FIELDS = {"dataset", "data", "task", "benchmark", "environment", "env", "domain", "corpus"}
"""Last parts of field paths whose values are rarely compared with each other."""
COLUMNS = 2
"""Number of columns in the settings of the baseline."""


def render(plan: Plan) -> tuple[RenderableType, ...]:
    """Return the dry run for a width of 100 columns: arms, trials, cost estimates and power."""
    proofs = {proof.arm: proof for proof in plan.proofs}
    parts: list[RenderableType] = [Text.assemble((plan.name, "bold"), "  ", plan.question)]
    parts += [_block(plan, arm, proofs) for arm in plan.arms]
    parts.append(Text(_check_sentence(plan), "dim"))
    parts += [
        Rule("trials and estimated cost", style="dim"),
        _estimate_table(plan),
        Text(
            _totals(plan)
            + _repeats(plan)
            + _exhausted(plan)
            + _repeated_points_warning(plan)
            + "".join(f"\n{line}" for line in _doubtful_settings(plan))
            + _unmatched_published_warning(plan)
            + _resource_text(plan)
            + _silence(plan)
        ),
    ]
    parts += map(Text, device_lines(plan))
    parts += map(Text, budget_lines(plan))
    if plan.selected_on:
        parts.append(Text(f"Warning: {SEEN.format(splits=' and '.join(plan.selected_on))}"))
    if plan.power is not None:
        sentence = no_verdict_warning(plan) or plan.power.sentence
        parts += [Rule(f"what the {plan.unit}s can show", style="dim"), Text(sentence)]
        parts += [Text(text)] if (text := rounds_sentence(plan)) else []
        parts += map(Text, outcomes_without_direction(plan))
    return tuple(parts)


def _check_sentence(plan: Plan) -> str:
    """Return a sentence on how the ablation check compared the arms."""
    if plan.trainable is None:
        return (
            "Parameters and FLOPs are those of each arm's whole model. The ablation check ran a narrow copy "
            f"of each model (widths near {NARROW}, at most {LAYERS} layers) forward and backward once, on "
            f"{EXAMPLES} examples of at most {LENGTH} tokens. If the copies of two arms did not differ, it "
            "ran their whole models."
        )
    if not plan.proofs:
        unchecked = (
            f"Not checked: whether the arms of {plan.trainable} differ in more than their settings; "
            "`haltsweep check --run` compares their first reports."
        )
        if script_command(plan.trainable) is not None:
            return unchecked
        return (
            f"{unchecked} To check it before the launch, define haltsweep = {{'build': build, 'example': "
            "example} in its module, with functions build(settings) -> nn.Module and example(settings)."
        )
    if all(proof.flops_max is None for proof in plan.proofs):
        return (
            f"Each arm's model was built by the build(settings) of {plan.trainable}. Not checked: whether "
            "models of equal weights compute differently. To check it, add example(settings) to haltsweep in "
            "its module."
        )
    return (
        f"Each arm's model was built by the build(settings) of {plan.trainable} and run forward and backward "
        "once on its example(settings), from one seed. Differences in the training alone do not show there."
    )


def _block(plan: Plan, arm: Arm, proofs: Mapping[str, ArmCheck]) -> RenderableType:
    title = Text.assemble((arm.name, "bold"), f"  {arm.why}")
    body: list[RenderableType] = [_settings(arm) if arm == plan.baseline else _changes(plan, arm)]
    body += [Text(line) for line in _space_lines(plan, arm)]
    if arm.name in proofs:
        body += [Text(line) for line in _proof_lines(proofs[arm.name], proofs.get(arm.reference))]
    return Group(Rule(title, align="left"), Padding(Group(*body), (0, 0, 1, 2)))


def _settings(arm: Arm) -> Table:
    """Return all settings of the baseline, in columns."""
    table = Table.grid(padding=(0, 2))
    cells = [Text.assemble((path, "dim"), " ", value_words(value)) for path, value in leaves(arm.settings)]
    height = -(-len(cells) // COLUMNS)
    columns = [cells[start : start + height] for start in range(0, len(cells), height)]
    for row in zip_longest(*columns, fillvalue=Text()):
        table.add_row(*row)
    return table


def _changes(plan: Plan, arm: Arm) -> Table:
    """Return the changes of an arm.

    For the baseline of another context, return its differences from the first baseline.
    """
    table = Table.grid(padding=(0, 2))
    if not arm.reference:
        for change in differences(plan.baseline.settings, arm.settings):
            if lookup(arm.settings, change.path) is not MISSING:
                table.add_row(Text(change.path, style="dim"), Text(value_words(change.after)))
        return table
    for change in arm.changes:
        old_words, new_words = change_words(change.before, change.after)
        table.add_row(Text(change.path), Text(old_words, style="red"), "->", Text(new_words, style="green"))
    return table


def _space_lines(plan: Plan, arm: Arm) -> Iterator[str]:
    """Yield the dimensions of the baseline; for other arms only the differences."""
    if plan.search is None:
        return
    baseline_dimensions = () if arm == plan.baseline else plan.baseline.space.dimensions
    new = [dimension for dimension in arm.space.dimensions if dimension not in baseline_dimensions]
    if len(new) < len(arm.space.dimensions):
        exception = f", but not {', '.join(arm.dropped)}" if arm.dropped else ""
        yield f"searches what the baseline searches{exception}"
    elif arm.dropped:
        yield f"does not search {', '.join(arm.dropped)}"
    for dimension in new:
        condition = condition_words(dimension)
        condition_text = f", when {condition}" if condition else ""
        yield f"searches {dimension.path}: {domain_words(dimension.domain)}{condition_text}"
    if arm == plan.baseline:
        for constraint in arm.space.constraints:
            yield f"only with {constraint}"
        yield from objective_lines(plan)
    yield from (f"tries first {_point(arm, params)}" for params in arm.first)


def _point(arm: Arm, point: Assignment) -> str:
    """Return an assignment in words, with a remark if it equals the arm's own settings."""
    words = ", ".join(f"{path} {value_words(value)}" for path, value in point.items())
    is_own = all(same(lookup(arm.settings, path), value) for path, value in point.items())
    return f"{words} (its own settings)" if is_own else words


def _proof_lines(proof: ArmCheck, reference: ArmCheck | None) -> Iterator[str]:
    base = reference.parameters if reference else proof.parameters
    delta = f" ({signed(proof.parameters - base)})" if proof.parameters != base else ""
    size = f"{count(proof.parameters)} parameters{delta}"
    if proof.flops_min is None or proof.flops_max is None:
        yield size
    else:
        input_text = "one input of full length" if proof.loss is not None else "its example"
        yield f"{size}; {input_text}: {_span(proof.flops_min, proof.flops_max, 'to')} FLOPs forward"
    for sign, modules in (("+", proof.module_tree_added), ("-", proof.module_tree_removed)):
        for module in modules:
            yield f"{sign} {module}"
    parts = []
    if proof.loss is not None and proof.gradient_norm is not None:
        sizes = [f"{path.removeprefix('model.')} {value}" for path, value in proof.run_with.items()]
        first = f"first loss {proof.loss:g}, gradient norm {proof.gradient_norm:g}"
        parts.append(f"{first} with {', '.join(sizes)}" if sizes else first)
    if proof.evidence:
        parts.append(f"differs in {', '.join(proof.evidence)}")
    elif reference is not None and proof.loss is None:
        parts.append("the models do not differ, so the change must affect training")
    if parts:
        yield "; ".join(parts)
    yield from (f"warning: {note}" for note in proof.notes)


def _estimate_table(plan: Plan) -> Table:
    timed = any(estimate.seconds_per_step is not None for estimate in plan.prices)
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("arm", overflow="fold")
    columns_known = ["FLOPs a step", "memory", "checkpoint"] if plan.trainable is None else []
    phases = _phases(plan)
    columns = [*phases, *columns_known, *(["a step, measured", "all steps"] if timed else [])]
    for column in columns:
        table.add_column(column, justify="right")
    for estimate in plan.prices:
        table.add_row(estimate.arm, *_estimate_cells(plan, estimate, timed=timed))
    totals = [str(sum(estimate.trials.get(phase, 0) for estimate in plan.prices)) for phase in phases]
    seconds = [duration(_total_seconds(plan))] if timed else []
    disk = ["", "", bytes_amount(_disk(plan))] if columns_known else []
    table.add_row("all", *totals, *disk, *([""] if timed else []), *seconds)
    return table


def _phases(plan: Plan) -> tuple[str, ...]:
    """Return the phases of trials that the plan may have."""
    crosses = plan.confirm is not None and plan.confirm.cross
    return (SEARCH, CONFIRM, *([CROSS] if crosses else []), POSTHOC)


def _estimate_cells(plan: Plan, estimate: ArmEstimate, *, timed: bool) -> list[str]:
    cells = [str(estimate.trials.get(phase, 0)) for phase in _phases(plan)]
    if plan.trainable is None:
        cells += [_span(estimate.train_flops_min or 0.0, estimate.train_flops_max or 0.0, "..")]
        cells += [bytes_amount(estimate.peak_memory_bytes or 0), bytes_amount(estimate.checkpoint_bytes or 0)]
    if timed:
        cells += [duration(estimate.seconds_per_step or 0.0), duration(_seconds(plan, estimate))]
    return cells


def _span(least: float, greatest: float, to: str) -> str:
    low, high = format_amount(least), format_amount(greatest)
    return low if low == high else f"{low} {to} {high}"


def _num_trained(estimate: ArmEstimate) -> int:
    return sum(estimate.trials.get(phase, 0) for phase in (SEARCH, CONFIRM, CROSS))


def _steps(plan: Plan, estimate: ArmEstimate) -> int:
    """Return the optimizer steps of all training trials of an arm, if none stops early."""
    steps = lookup(plan.arm(estimate.arm).settings, "train.steps")
    assert steps is not MISSING
    return _num_trained(estimate) * int(steps)


def _seconds(plan: Plan, estimate: ArmEstimate) -> float:
    return (estimate.seconds_per_step or 0.0) * _steps(plan, estimate)


def _total_seconds(plan: Plan) -> float:
    return sum(_seconds(plan, estimate) for estimate in plan.prices)


def _disk(plan: Plan) -> int:
    """Return the bytes of one checkpoint for every training trial."""
    return sum(_num_trained(estimate) * (estimate.checkpoint_bytes or 0) for estimate in plan.prices)


def _silence(plan: Plan) -> str:
    if plan.resources.silent_minutes is None:
        return ""
    return f"\nA trial that reports nothing for {plan.resources.silent_minutes:g} minutes is ended."


def _repeats(plan: Plan) -> str:
    """Return how often every arm is searched and confirmed, and the names of controls."""
    controls = ", ".join(arm.name for arm in plan.arms if arm.control)
    sentence = f"\nControls, which no correction counts and which never win: {controls}."
    controls_text = sentence if controls else ""
    if plan.search is None or plan.confirm is None or not plan.power or not plan.power.comparisons:
        return controls_text
    if plan.repeats == 1:
        once = (
            "\nEvery arm is searched once: a verdict holds for the settings that this search found. With "
            "search.repeats it covers the luck of a search too."
        )
        return once * any(arm.is_searched for arm in plan.arms) + controls_text
    seeds = len(plan.confirm.seeds) // plan.repeats
    return (
        f"\nEvery search runs {plan.repeats} times, {counted(plan.search.trials_per_arm, 'trial')} each, and "
        f"is confirmed each time on {counted(seeds, 'seed')} of its own." + controls_text
    )


def _exhausted(plan: Plan) -> str:
    """Return a sentence on searches with fewer trials than requested, since every combination was tried."""
    if plan.search is None:
        return ""
    num_trials = plan.search.trials_per_arm
    counts = Counter(trial.arm for trial in plan.trials if trial.phase == SEARCH and not trial.repeat)
    shorter = ", ".join(f"{arm} {count}" for arm, count in counts.items() if count < num_trials)
    if not shorter:
        return ""
    return f"\nSearches end when every combination was tried, after fewer than {num_trials}: {shorter}."


def _repeated_points_warning(plan: Plan) -> str:
    """Return a warning on searches that have more trials than distinct points."""
    counts = Counter(trial.arm for trial in plan.trials if trial.phase == SEARCH and not trial.repeat)
    repeated = [
        f"{arm.name} {points} for {counts[arm.name]}"
        for arm in plan.arms
        if arm.name in counts and (points := num_points(arm)) is not None and 1 < points < counts[arm.name]
    ]
    if not repeated:
        return ""
    return (
        f"\nWarning: there are fewer points than trials of the search: {', '.join(repeated)}. The rest "
        "repeat points with other seeds; lower search.trials_per_arm, or take the sampler grid: it tries "
        "each once."
    )


def no_verdict_warning(plan: Plan) -> str:
    """Return a warning if arms are compared but no verdict is possible; empty otherwise."""
    if plan.power is None or not plan.power.comparisons or plan.power.smallest_effect is not None:
        return ""
    return f"Warning: {plan.power.sentence}"


def plan_warnings(plan: Plan) -> list[str]:
    """Return the warnings of a plan, for output that does not display the plan."""
    checks = plan.proofs if plan.trainable else ()
    notes = [f"Warning: {check.arm}: {note}." for check in checks for note in check.notes]
    repeated = [line] if (line := _repeated_points_warning(plan).strip()) else []
    return [*repeated, *_doubtful_settings(plan), *notes]


def _doubtful_settings(plan: Plan) -> list[str]:
    texts = [*_refused_draws(plan), *_may_become_one(plan), *_may_be_contexts(plan)]
    texts += [*idle_patience_warnings(plan), *reversed_goal_warnings(plan)]
    return [*texts, *_custom_code_warnings(plan), *_placeholders(plan)]


def _placeholders(plan: Plan) -> Iterator[str]:
    """Yield a warning for texts of a first spec that its author has not replaced."""
    keys = [f"why of {arm.name}" for arm in plan.arms if arm.why == WHY]
    if plan.question == QUESTION:
        keys.insert(0, "question")
    if keys:
        yield f"Warning: still the text of `haltsweep new`: {', '.join(keys)}. Write your own."


def _may_be_contexts(plan: Plan) -> Iterator[str]:
    """Yield warnings for grid fields whose names suggest that they should be contexts."""
    first: dict[str, Arm] = {}
    for arm in plan.arms:
        if arm.reference and arm.name.startswith(f"{BASELINE}["):
            for change in arm.changes:
                first.setdefault(change.path, arm)
    for path, arm in first.items():
        if path != "task.name" and path.rpartition(".")[2].lower() not in CONTEXT_FIELDS:
            continue
        yield (
            f"Warning: the grid sets {path}, so that {arm.name} is compared with {arm.reference}. Write "
            f"{path} under contexts instead of grid to compare arms for each value of it alone."
        )


def _refused_draws(plan: Plan) -> Iterator[str]:
    """Yield a warning for every Config next to the trainable that refuses combinations of a search."""
    predicates = {
        str(rule): (arm.name, rule)
        for arm in reversed(plan.arms)
        for rule in arm.space.constraints
        if isinstance(rule, Predicate) and rule.refused
    }
    for name, predicate in predicates.values():
        yield (
            f"Warning: {predicate} refuses {predicate.refused:,} of {predicate.tried:,} combinations that "
            f"were tried of {name}'s search. What it refuses is drawn again and costs no trial."
        )


def _may_become_one(plan: Plan) -> Iterator[str]:
    """Yield warnings for arms that set only values that the search of their reference may also choose.

    Arms that also leave other fields out of the search are skipped: they are meant to measure the effect of
    searching.
    """
    for arm in plan.arms:
        if not arm.reference:
            continue
        space = plan.arm(arm.reference).space
        unsearched = {*space.paths} - {*arm.space.paths} - {change.path for change in arm.changes}
        if arm.changes and not unsearched and all(_may_choose(space, change) for change in arm.changes):
            sets = ", ".join(f"{change.path} {value_words(change.after)}" for change in arm.changes)
            paths = ", ".join(change.path for change in arm.changes)
            yield (
                f"Warning: the search of {arm.reference} may choose what {arm.name} sets ({sets}), and "
                f"then both are one system: leave {paths} out of the search if the arm is to be compared "
                "with something else."
            )


def _may_choose(space: Space, change: Change) -> bool:
    """Return whether a search is likely to draw the value of `change`; false for ranges without steps."""
    if change.path not in space.paths:
        return False
    domain = space[change.path].domain
    return not (isinstance(domain, Float) and domain.step is None) and contains(domain, change.after)


def _custom_code_warnings(plan: Plan) -> list[str]:
    """Return warnings for settings that custom training code may misinterpret."""
    if not plan.trainable:
        return []
    texts = dict.fromkeys(
        (field, value)
        for arm in plan.arms
        for field, value in leaves(arm.settings)
        if isinstance(value, str) and value.lower() in MEANT_FALSE
    )
    texts_for_false = [
        f"Warning: {field} is the text {value!r}, true for Python: write false if that is meant."
        for field, value in texts
    ]
    return [
        *texts_for_false,
        *script_warnings(plan.trainable, plan.arms),
        *_undeclared_metric_warnings(plan),
        *_thread_warnings(plan.trainable),
    ]


def _thread_warnings(trainable: str) -> list[str]:
    """Return a warning if importing the trainable starts threads, so that trials cannot be forked."""
    module = trainable.partition(":")[0]
    if not (thread_names := num_started_threads(module)):
        return []
    started = f"importing {module} starts {counted(thread_names, 'thread')}"
    effect = "so each trial starts a fresh interpreter instead of a fork, which takes seconds longer"
    return [f"Warning: {started}, {effect}."]


def _undeclared_metric_warnings(plan: Plan) -> list[str]:
    """Return warnings for used metrics that custom training code does not declare, if it declares any."""
    declared_names = {metric.name for metric in plan.metrics}
    if not declared_names:
        return []
    searched_metrics = [objective.metric for objective in plan.objectives]
    published = dict.fromkeys(row["metric"] for row in plan.published)
    return [
        f"Warning: {metric} is {use} and not declared in the metrics of {plan.trainable}, which has "
        f"{', '.join(sorted(declared_names))}."
        for use, metrics in (
            ("searched for", searched_metrics),
            ("a primary outcome", plan.outcomes),
            ("published", published),
        )
        for metric in metrics
        if declared_names.isdisjoint({metric, split_and_quantity(metric)[1]})
    ]


def _unmatched_published_warning(plan: Plan) -> str:
    """Return a warning on published values that no evaluation of the sweep corresponds to."""
    rows = [f"{row['metric']} of {name_of(row)} on {row['split']}" for row in rows_without_evaluation(plan)]
    if not rows:
        return ""
    remedy = "Add the splits to confirm.splits, or leave the rows out"
    if plan.confirm is None:
        remedy = "Add confirm: what a search reads is compared with nothing published"
    return f"\nWarning: no confirmed trial reads what was published as {'; '.join(rows)}. {remedy}."


def _resource_text(plan: Plan) -> str:
    """Return the resources of each trial as text."""
    cpus, gpus = plan.resources.cpus, plan.resources.gpus
    cores = "1 CPU core" if cpus == 1 else f"{value_words(cpus)} CPU cores"
    share = f"{value_words(gpus)} of a GPU" if gpus <= 1 else f"{value_words(gpus)} GPUs"
    has = f"{cores} and {share}" if gpus else cores
    return f"\nA trial has {has}."


def _totals(plan: Plan) -> str:
    trials = count(len(plan.trials))
    if plan.trainable is not None:
        return f"{trials} trials. The cost of a step of {plan.trainable} is not known in advance."
    flops = sum(_steps(plan, estimate) * (estimate.train_flops_max or 0.0) for estimate in plan.prices)
    disk = bytes_amount(_disk(plan))
    work = f"{format_amount(flops)} FLOPs if no trial stops or halts early"
    return f"{trials} trials; {work}; {disk} of checkpoints."
