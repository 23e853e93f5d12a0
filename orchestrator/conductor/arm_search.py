"""Run one repeat of the search of one arm as an in-memory Optuna study that receives all events in order.

Each call of `ask` uses a new sampler, seeded by (study seed, trial number). Samplers therefore need no
pickling, and a study rebuilt from the same history proposes the same assignments as the uninterrupted study.
"""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import optuna
from optuna.trial import TrialState

from orchestrator.conductor.messages import NoAdmissibleDraw
from orchestrator.errors import InputError, SearchError
from orchestrator.identity import derive_seed
from orchestrator.plan.planned_trials import search_root_seed
from orchestrator.plan.types import Arm, SearchPlan
from orchestrator.search.samplers import (
    ComponentChoice,
    InvalidSampler,
    choose_sampler,
    choose_stopper,
    make_sampler,
    make_stopper,
)
from orchestrator.search.suggestions import stored_value, suggest
from search_spaces.algebra import admits, exists
from search_spaces.dimensions import Assignment, Dimension, Fixed, Rule, Value
from search_spaces.grid import combinations
from search_spaces.predicates import PredicateFailed
from trainables.custom.extensions import describe_error

MAX_DRAWS = 1000
"""Maximum number of draws before the search reports that a constraint cannot be satisfied."""
MAX_SAMPLER_DRAWS = 30
"""Number of draws by the chosen sampler; later draws are uniform.

A model-based sampler can keep proposing assignments that violate the constraints.
"""


class ArmSearch:
    """Optuna study of one repeat of one arm; equal events in equal order give equal assignments."""

    def __init__(self, arm: Arm, plan: SearchPlan, repeat: int = 0) -> None:
        self._arm = arm
        self._plan = plan
        # Repeats are paired by index: in repeat n, all arms except controls draw with the same seed. With a
        # single search, the arm name is part of the seed, so that arms draw independently.
        key_parts = (arm.name,) if plan.repeats == 1 else ()
        self._root: tuple[str | int, ...] = (search_root_seed(plan, repeat, arm), *key_parts)
        self._sampler, pruner = _choose_components(plan)
        self._grid = [*_grid_points(arm)] if self._sampler.is_grid else []
        self._base_sampler = optuna.samplers.RandomSampler(seed=0)
        self._trials: dict[int, optuna.Trial] = {}
        self._last_values: dict[int, Sequence[float]] = {}
        self._diverged_without_value: list[int] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._study = optuna.create_study(
                study_name=arm.name,
                directions=["maximize" if entry.goal == "max" else "minimize" for entry in plan.objectives],
                sampler=self._base_sampler,
                pruner=pruner,
            )

    def ask(self, number: int) -> Assignment:
        """Return an assignment for trial `number`.

        Raises:
            NoAdmissibleDraw: If no draw satisfies the constraints of the space.
            SearchError: If the sampler or a constraint raises an error.
        """
        if self._sampler.is_grid or number < len(self._arm.first):
            assignment = self._grid[number] if self._sampler.is_grid else self._arm.first[number]
            self.record_params(number, assignment)
            return assignment
        with self._convert_errors("sampler", number):
            try:
                trial, assignment = self._draw(number)
            except NoAdmissibleDraw:  # leave the study in the state that a replay gives
                self._enqueue(number, {})
                self.record_failed(number)
                raise
        self._trials[number] = trial
        return assignment

    def record_params(self, number: int, assignment: Assignment) -> None:
        """Record that trial `number` ran with `assignment`; it leaves the study in the same state as `ask`.

        Raises:
            SearchError: If the sampler or a constraint raises an error.
        """
        # Draws that violated a constraint are trials of the study too, and some stoppers use trial numbers.
        needs_redraw = not self._sampler.is_stateless or self._arm.space.constraints
        is_drawn = not self._sampler.is_grid and number >= len(self._arm.first)
        with self._convert_errors("sampler", number):
            if is_drawn and needs_redraw and self._redraw(number, assignment):
                return
        self._enqueue(number, assignment)

    def _enqueue(self, number: int, assignment: Assignment) -> None:
        self._study.enqueue_trial(_encode_params(self._arm.space.dimensions, assignment))
        trial = self._study.ask()
        for path in assignment:
            suggest(trial, path, self._arm.space[path].domain)
        self._trials[number] = trial

    def record_retried(self, number: int, assignment: Assignment) -> None:
        """Mark the failed trial `number` to run again.

        The Optuna study keeps the failed trial and gets a new trial with the same values.
        """
        if number in self._diverged_without_value:
            self._diverged_without_value.remove(number)
            self.record_failed(number)
        self._last_values.pop(number, None)
        self._enqueue(number, assignment)

    def report(self, number: int, step: int, values: Sequence[float]) -> bool:
        """Report the objective values so far to the early stopper; return whether it ends the trial.

        Raises:
            SearchError: If the stopper raises an error.
        """
        self._last_values[number] = values
        if len(values) > 1:
            return False
        self._trials[number].report(values[0], step)
        if self._plan.stopper is None:
            return False
        with self._convert_errors("stopper", number):
            return bool(self._trials[number].should_prune())

    def record_finished(self, number: int) -> None:
        """Record that the trial finished with the values of its last `report`."""
        self._report_to_study(number, TrialState.COMPLETE, self._last_values[number])
        for unranked_trial in self._diverged_without_value:
            self._report_to_study(unranked_trial, TrialState.COMPLETE, self._worst_values())
        self._diverged_without_value.clear()

    def record_pruned(self, number: int) -> None:
        """Record that the early stopper ended the trial."""
        self._report_to_study(number, TrialState.PRUNED)

    def record_infeasible(self, number: int) -> None:
        """Record that the settings cannot be trained; samplers get a value worse than all others."""
        self._last_values.pop(number, None)
        self._report_to_study(number, TrialState.PRUNED)

    def record_diverged(self, number: int) -> None:
        """Record that the trial diverged; rank it with the worst value so far, once any value exists."""
        if self._last_values:
            self._report_to_study(number, TrialState.COMPLETE, self._worst_values())
        else:
            self._diverged_without_value.append(number)

    def record_failed(self, number: int) -> None:
        """Record that the trial failed and gives no information about its assignment."""
        self._report_to_study(number, TrialState.FAIL)

    @contextmanager
    def _convert_errors(self, part: Literal["sampler", "stopper"], number: int) -> Iterator[None]:
        """Convert exceptions of a sampler, stopper or constraint to `SearchError`."""
        try:
            yield
        except (NoAdmissibleDraw, KeyboardInterrupt):
            raise
        except PredicateFailed as error:
            raise SearchError(
                f"a constraint failed at search trial {number} of arm {self._arm.name!r}: {error}"
            ) from error
        except BaseException as error:
            component_spec = self._plan.sampler if part == "sampler" else self._plan.stopper
            assert component_spec is not None, "an unset stopper cannot fail"
            raise SearchError(
                f"the {part} {component_spec['name']} failed at search trial {number} of arm "
                f"{self._arm.name!r}, with {describe_error(error)}"
            ) from error

    def _report_to_study(self, number: int, state: TrialState, values: Sequence[float] | None = None) -> None:
        self._study.tell(self._trials.pop(number), values, state)

    def _worst_values(self) -> list[float]:
        columns = zip(*self._last_values.values(), strict=True)
        return [
            min(column) if objective.goal == "max" else max(column)
            for objective, column in zip(self._plan.objectives, columns, strict=True)
        ]

    def _draw(self, number: int) -> tuple[optuna.Trial, Assignment]:
        violated_rule: Rule | None = None
        for attempt in range(MAX_DRAWS):
            trial, assignment = self._draw_once(self._random_sampler(number, attempt))
            violated_rule = self._violated_constraint(assignment)
            if violated_rule is None:
                return trial, assignment
            self._study.tell(trial, state=TrialState.FAIL)
        raise NoAdmissibleDraw(
            f"every assignment must satisfy {violated_rule}, and {MAX_DRAWS} draws for arm "
            f"{self._arm.name!r} did not; narrow the space so that the constraint can hold"
        )

    def _draw_once(self, sampler: optuna.samplers.BaseSampler) -> tuple[optuna.Trial, Assignment]:
        self._study.sampler = sampler
        trial = self._study.ask()
        assignment: dict[str, Value] = {}
        for dimension in self._arm.space.dimensions:
            if exists(dimension, assignment, self._arm.settings):
                assignment[dimension.path] = suggest(trial, dimension.path, dimension.domain)
        # Some samplers stop the optimisation loop of Optuna when all points are visited. No loop runs here,
        # so the neutral sampler receives the ends of trials.
        self._study.sampler = self._base_sampler
        return trial, assignment

    def _random_sampler(self, number: int, attempt: int) -> optuna.samplers.BaseSampler:
        seed_parts: tuple[int, ...] = (
            () if self._sampler.is_seeded_once else (number, attempt) if attempt else (number,)
        )
        seed = derive_seed(*self._root, *seed_parts)
        if attempt < MAX_SAMPLER_DRAWS:
            return make_sampler(self._sampler, seed)
        return optuna.samplers.RandomSampler(seed=derive_seed(seed, attempt))

    def _redraw(self, number: int, assignment: Assignment) -> bool:
        """Repeat the draw of trial `number` for the sampler's attributes; return whether it matched.

        Another version of Optuna may draw another assignment.
        """
        try:
            trial, drawn_params = self._draw(number)
        except NoAdmissibleDraw:
            return False
        if drawn_params == assignment:
            self._trials[number] = trial
            return True
        self._study.tell(trial, state=TrialState.FAIL)
        return False

    def _violated_constraint(self, assignment: Assignment) -> Rule | None:
        rules, settings = self._arm.space.constraints, self._arm.settings
        return next((rule for rule in rules if not admits(rule, assignment, settings)), None)


def _grid_points(arm: Arm) -> Iterator[Assignment]:
    """Yield every combination of the arm's space; those in `arm.first` come first."""
    yield from arm.first
    yield from (params for params in combinations(arm.space, arm.settings) if params not in arm.first)


def _encode_params(dimensions: Sequence[Dimension], assignment: Assignment) -> dict[str, Any]:
    """Return `assignment` as Optuna stores it: choices by position, fixed values omitted."""
    domains = {dimension.path: dimension.domain for dimension in dimensions}
    return {
        path: stored_value(domain, assignment[path])
        for path, domain in domains.items()
        if path in assignment and not isinstance(domain, Fixed)
    }


def _choose_components(plan: SearchPlan) -> tuple[ComponentChoice, optuna.pruners.BasePruner]:
    """Return the sampler and the stopper of the plan.

    Raises:
        InputError: If a custom sampler or stopper can no longer be imported.
    """
    try:
        if plan.stopper is None:
            return choose_sampler(plan.sampler), optuna.pruners.NopPruner()
        return choose_sampler(plan.sampler), make_stopper(choose_stopper(plan.stopper))
    except InvalidSampler as error:
        raise InputError(
            f"the search needs the code that it was planned with, but {error}; change to the folder of "
            "that code, or add it to PYTHONPATH"
        ) from error
