"""Display a plan before its launch: changes of each arm, cost estimates, and detectable effects."""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import zip_longest

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from orchestrator.plan.ablation_check.passes import EXAMPLES, TRAINING_LENGTH
from orchestrator.plan.ablation_check.probe import LAYERS, NARROW_WIDTH
from orchestrator.plan.answer import TEST_DATA_SELECTION_WARNING, outcomes_without_direction
from orchestrator.plan.budget import budget_lines
from orchestrator.plan.display.format import (
    bytes_amount,
    change_words,
    condition_words,
    count,
    domain_words,
    format_amount,
    format_duration,
    format_signed,
    value_words,
)
from orchestrator.plan.planned_trials import CONFIRM, CROSS, POSTHOC, SEARCH, num_points
from orchestrator.plan.power import rounds_sentence
from orchestrator.plan.published.published_rows import row_name, rows_without_evaluation
from orchestrator.plan.report_counts import idle_patience_warnings
from orchestrator.plan.space_check.objective_descriptions import objective_lines, reversed_goal_warnings
from orchestrator.plan.training_code.device_choices import device_lines
from orchestrator.plan.training_code.script_warnings import script_warnings
from orchestrator.plan.training_code.settings import differences
from orchestrator.plan.types import Arm, ArmCheck, ArmEstimate, Change, Plan
from orchestrator.spec.checks import BASELINE
from orchestrator.spec.placeholders import ARM_REASON, QUESTION
from search_spaces.dimensions import Assignment, Float, Predicate, Space, are_equal, contains
from search_spaces.paths import MISSING, leaves, lookup
from search_spaces.wording import amount as counted
from trainables.custom.extensions import num_started_threads
from trainables.custom.source_files import script_command
from trainables.metrics import split_and_quantity

FALSE_WORDS = {"no", "off", "false"}
"""Texts that were probably meant as false, but are non-empty and therefore true in Python.

YAML 1.2 reads `no` and `off` as texts even without quotes.
"""
CONTEXT_FIELDS = {"dataset", "data", "task", "benchmark", "environment", "env", "domain", "corpus"}
"""Last parts of field paths whose values are rarely compared with each other."""
SETTINGS_COLUMNS = 2
"""Number of columns in the settings of the baseline."""


def render(plan: Plan) -> tuple[RenderableType, ...]:
    """Return the dry run for a width of 100 columns: arms, trials, cost estimates and power."""
    proofs = {proof.arm: proof for proof in plan.proofs}
    parts: list[RenderableType] = [Text.assemble((plan.name, "bold"), "  ", plan.question)]
    parts += [_arm_block(plan, arm, proofs) for arm in plan.arms]
    parts.append(Text(_check_sentence(plan), "dim"))
    parts += [
        Rule("trials and estimated cost", style="dim"),
        _estimate_table(plan),
        Text(
            _totals_text(plan)
            + _repeats_text(plan)
            + _exhausted_search_text(plan)
            + _repeated_points_warning(plan)
            + "".join(f"\n{line}" for line in _doubtful_settings(plan))
            + _unmatched_published_warning(plan)
            + _resource_text(plan)
            + _silence_text(plan)
        ),
    ]
    parts += map(Text, device_lines(plan))
    parts += map(Text, budget_lines(plan))
    if plan.selected_on:
        parts.append(
            Text(f"Warning: {TEST_DATA_SELECTION_WARNING.format(splits=' and '.join(plan.selected_on))}")
        )
    if plan.power is not None:
        sentence = no_verdict_warning(plan) or plan.power.sentence
        parts += [Rule("detectable effects", style="dim"), Text(sentence)]
        parts += [Text(text)] if (text := rounds_sentence(plan)) else []
        parts += map(Text, outcomes_without_direction(plan))
    return tuple(parts)


def _check_sentence(plan: Plan) -> str:
    """Return a sentence on how the ablation check compared the arms."""
    if plan.trainable is None:
        return (
            "Parameters and FLOPs are those of each arm's whole model. The ablation check ran a narrow copy "
            f"of each model (widths near {NARROW_WIDTH}, at most {LAYERS} layers) forward and backward "
            "once, on "
            f"{EXAMPLES} examples of at most {TRAINING_LENGTH} tokens. If the copies of two arms did not "
            "differ, it ran their whole models."
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


def _arm_block(plan: Plan, arm: Arm, checks_by_arm: Mapping[str, ArmCheck]) -> RenderableType:
    title = Text.assemble((arm.name, "bold"), f"  {arm.why}")
    body: list[RenderableType] = [_settings_table(arm) if arm == plan.baseline else _changes_table(plan, arm)]
    body += [Text(line) for line in _space_lines(plan, arm)]
    if arm.name in checks_by_arm:
        body += [
            Text(line) for line in _check_lines(checks_by_arm[arm.name], checks_by_arm.get(arm.reference))
        ]
    return Group(Rule(title, align="left"), Padding(Group(*body), (0, 0, 1, 2)))


def _settings_table(arm: Arm) -> Table:
    """Return all settings of the baseline, in columns."""
    table = Table.grid(padding=(0, 2))
    cells = [Text.assemble((path, "dim"), " ", value_words(value)) for path, value in leaves(arm.settings)]
    height = -(-len(cells) // SETTINGS_COLUMNS)
    columns = [cells[start : start + height] for start in range(0, len(cells), height)]
    for row in zip_longest(*columns, fillvalue=Text()):
        table.add_row(*row)
    return table


def _changes_table(plan: Plan, arm: Arm) -> Table:
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
        exception = f" without {', '.join(arm.dropped)}" if arm.dropped else ""
        yield f"has the search space of the baseline{exception}"
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
    yield from (f"tries first {_format_point(arm, params)}" for params in arm.first)


def _format_point(arm: Arm, point: Assignment) -> str:
    """Return an assignment in words, with a remark if it equals the arm's own settings."""
    words = ", ".join(f"{path} {value_words(value)}" for path, value in point.items())
    is_own = all(are_equal(lookup(arm.settings, path), value) for path, value in point.items())
    return f"{words} (its own settings)" if is_own else words


def _check_lines(check: ArmCheck, reference_check: ArmCheck | None) -> Iterator[str]:
    base = reference_check.parameters if reference_check else check.parameters
    delta = f" ({format_signed(check.parameters - base)})" if check.parameters != base else ""
    size = f"{count(check.parameters)} parameters{delta}"
    if check.flops_min is None or check.flops_max is None:
        yield size
    else:
        input_text = "one input of full length" if check.loss is not None else "its example"
        yield f"{size}; {input_text}: {_format_range(check.flops_min, check.flops_max, 'to')} FLOPs forward"
    for sign, modules in (("+", check.module_tree_added), ("-", check.module_tree_removed)):
        for module in modules:
            yield f"{sign} {module}"
    parts = []
    if check.loss is not None and check.gradient_norm is not None:
        sizes = [f"{path.removeprefix('model.')} {value}" for path, value in check.run_with.items()]
        first = f"first loss {check.loss:g}, gradient norm {check.gradient_norm:g}"
        parts.append(f"{first} with {', '.join(sizes)}" if sizes else first)
    if check.evidence:
        parts.append(f"differs in {', '.join(check.evidence)}")
    elif reference_check is not None and check.loss is None:
        parts.append("the models do not differ, so the change must affect training")
    if parts:
        yield "; ".join(parts)
    yield from (f"warning: {note}" for note in check.notes)


def _estimate_table(plan: Plan) -> Table:
    timed = any(estimate.seconds_per_step is not None for estimate in plan.prices)
    table = Table(box=None, header_style="dim", pad_edge=False)
    table.add_column("arm", overflow="fold")
    columns_known = ["FLOPs a step", "memory", "checkpoint"] if plan.trainable is None else []
    phases = _phases_of(plan)
    columns = [*phases, *columns_known, *(["a step, measured", "all steps"] if timed else [])]
    for column in columns:
        table.add_column(column, justify="right")
    for estimate in plan.prices:
        table.add_row(estimate.arm, *_estimate_cells(plan, estimate, timed=timed))
    totals = [str(sum(estimate.trials.get(phase, 0) for estimate in plan.prices)) for phase in phases]
    seconds = [format_duration(_total_seconds(plan))] if timed else []
    disk = ["", "", bytes_amount(_checkpoint_disk_bytes(plan))] if columns_known else []
    table.add_row("all", *totals, *disk, *([""] if timed else []), *seconds)
    return table


def _phases_of(plan: Plan) -> tuple[str, ...]:
    """Return the phases of trials that the plan may have."""
    crosses = plan.confirm is not None and plan.confirm.cross
    return (SEARCH, CONFIRM, *([CROSS] if crosses else []), POSTHOC)


def _estimate_cells(plan: Plan, estimate: ArmEstimate, *, timed: bool) -> list[str]:
    cells = [str(estimate.trials.get(phase, 0)) for phase in _phases_of(plan)]
    if plan.trainable is None:
        cells += [_format_range(estimate.train_flops_min or 0.0, estimate.train_flops_max or 0.0, "..")]
        cells += [bytes_amount(estimate.peak_memory_bytes or 0), bytes_amount(estimate.checkpoint_bytes or 0)]
    if timed:
        cells += [
            format_duration(estimate.seconds_per_step or 0.0),
            format_duration(_training_seconds(plan, estimate)),
        ]
    return cells


def _format_range(least: float, greatest: float, separator: str) -> str:
    low, high = format_amount(least), format_amount(greatest)
    return low if low == high else f"{low} {separator} {high}"


def _num_trained(estimate: ArmEstimate) -> int:
    return sum(estimate.trials.get(phase, 0) for phase in (SEARCH, CONFIRM, CROSS))


def _training_steps(plan: Plan, estimate: ArmEstimate) -> int:
    """Return the optimizer steps of all training trials of an arm, if none stops early."""
    steps = lookup(plan.arm(estimate.arm).settings, "train.steps")
    assert steps is not MISSING
    return _num_trained(estimate) * int(steps)


def _training_seconds(plan: Plan, estimate: ArmEstimate) -> float:
    return (estimate.seconds_per_step or 0.0) * _training_steps(plan, estimate)


def _total_seconds(plan: Plan) -> float:
    return sum(_training_seconds(plan, estimate) for estimate in plan.prices)


def _checkpoint_disk_bytes(plan: Plan) -> int:
    """Return the bytes of one checkpoint for every training trial."""
    return sum(_num_trained(estimate) * (estimate.checkpoint_bytes or 0) for estimate in plan.prices)


def _silence_text(plan: Plan) -> str:
    if plan.resources.silent_minutes is None:
        return ""
    return f"\nA trial that reports nothing for {plan.resources.silent_minutes:g} minutes is ended."


def _repeats_text(plan: Plan) -> str:
    """Return how often every arm is searched and confirmed, and the names of controls."""
    controls = ", ".join(arm.name for arm in plan.arms if arm.control)
    sentence = f"\nControls (not part of the correction, never the winner): {controls}."
    controls_text = sentence if controls else ""
    if plan.search is None or plan.confirm is None or not plan.power or not plan.power.comparisons:
        return controls_text
    if plan.repeats == 1:
        single_search_text = (
            "\nEvery arm is searched once, so verdicts hold only for the settings that the search found. "
            "Set search.repeats to include variance between searches."
        )
        return single_search_text * any(arm.is_searched for arm in plan.arms) + controls_text
    seeds = len(plan.confirm.seeds) // plan.repeats
    return (
        f"\nEvery search runs {plan.repeats} times, {counted(plan.search.trials_per_arm, 'trial')} each, and "
        f"is confirmed each time on {counted(seeds, 'seed')} of its own." + controls_text
    )


def _exhausted_search_text(plan: Plan) -> str:
    """Return a sentence on searches with fewer trials than requested, since every combination was tried."""
    if plan.search is None:
        return ""
    num_trials = plan.search.trials_per_arm
    counts = Counter(trial.arm for trial in plan.trials if trial.phase == SEARCH and not trial.repeat)
    shorter_searches = ", ".join(f"{arm} {count}" for arm, count in counts.items() if count < num_trials)
    if not shorter_searches:
        return ""
    return (
        f"\nSearches end when every combination was tried, after fewer than {num_trials}: {shorter_searches}."
    )


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
        f"\nWarning: the search space has fewer distinct params than trials: {', '.join(repeated)}. "
        "Further trials repeat params with other seeds; lower search.trials_per_arm, or use the sampler "
        "grid, which tries all params once."
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
    texts = [*_refused_draw_warnings(plan), *_possible_duplicate_warnings(plan), *_context_warnings(plan)]
    texts += [*idle_patience_warnings(plan), *reversed_goal_warnings(plan)]
    return [*texts, *_custom_code_warnings(plan), *_placeholder_warnings(plan)]


def _placeholder_warnings(plan: Plan) -> Iterator[str]:
    """Yield a warning for texts of a first spec that its author has not replaced."""
    keys = [f"why of {arm.name}" for arm in plan.arms if arm.why == ARM_REASON]
    if plan.question == QUESTION:
        keys.insert(0, "question")
    if keys:
        yield f"Warning: still the text of `haltsweep new`: {', '.join(keys)}. Write your own."


def _context_warnings(plan: Plan) -> Iterator[str]:
    """Yield warnings for grid fields whose names suggest that they should be contexts."""
    arm_by_path: dict[str, Arm] = {}
    for arm in plan.arms:
        if arm.reference and arm.name.startswith(f"{BASELINE}["):
            for change in arm.changes:
                arm_by_path.setdefault(change.path, arm)
    for path, arm in arm_by_path.items():
        if path != "task.name" and path.rpartition(".")[2].lower() not in CONTEXT_FIELDS:
            continue
        yield (
            f"Warning: the grid sets {path}, so {arm.name} is compared with {arm.reference}. To compare arms "
            f"separately for each value, write {path} under contexts instead of grid."
        )


def _refused_draw_warnings(plan: Plan) -> Iterator[str]:
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
            f"were tried of {name}'s search. The search draws refused combinations again; they cost no trial."
        )


def _possible_duplicate_warnings(plan: Plan) -> Iterator[str]:
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
            set_values = ", ".join(f"{change.path} {value_words(change.after)}" for change in arm.changes)
            paths = ", ".join(change.path for change in arm.changes)
            yield (
                f"Warning: the search of {arm.reference} may choose the values that {arm.name} sets "
                f"({set_values}), and then both arms are equal. Leave {paths} out of the search if the arm "
                "must differ from its reference."
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
        if isinstance(value, str) and value.lower() in FALSE_WORDS
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
    thread_text = f"importing {module} starts {counted(thread_names, 'thread')}"
    effect = "so each trial starts a fresh interpreter instead of a fork, which takes seconds longer"
    return [f"Warning: {thread_text}, {effect}."]


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
    rows = [f"{row['metric']} of {row_name(row)} on {row['split']}" for row in rows_without_evaluation(plan)]
    if not rows:
        return ""
    remedy = "Add the splits to confirm.splits, or leave the rows out"
    if plan.confirm is None:
        remedy = "Add confirm: search trials are not compared with published values"
    return f"\nWarning: no confirm trial measures these published values: {'; '.join(rows)}. {remedy}."


def _resource_text(plan: Plan) -> str:
    """Return the resources of each trial as text."""
    cpus, gpus = plan.resources.cpus, plan.resources.gpus
    cores = "1 CPU core" if cpus == 1 else f"{value_words(cpus)} CPU cores"
    gpu_share = f"{value_words(gpus)} of a GPU" if gpus <= 1 else f"{value_words(gpus)} GPUs"
    resources_text = f"{cores} and {gpu_share}" if gpus else cores
    return f"\nA trial has {resources_text}."


def _totals_text(plan: Plan) -> str:
    trials = count(len(plan.trials))
    if plan.trainable is not None:
        return f"{trials} trials. The cost of a step of {plan.trainable} is not known in advance."
    flops = sum(
        _training_steps(plan, estimate) * (estimate.train_flops_max or 0.0) for estimate in plan.prices
    )
    disk = bytes_amount(_checkpoint_disk_bytes(plan))
    work = f"{format_amount(flops)} FLOPs if no trial stops or halts early"
    return f"{trials} trials; {work}; {disk} of checkpoints."
