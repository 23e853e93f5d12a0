"""Accepted sampler and stopper names are Optuna's, and every accepted one can be built and used."""

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import optuna
import pytest
import ray

from orchestrator.search.sampler_check import check_sampler, check_stopper
from orchestrator.search.samplers import (
    SAMPLERS,
    STOPPER,
    STOPPERS,
    ComponentChoice,
    InvalidSampler,
    StopperPatience,
    choose_sampler,
    choose_stopper,
    make_sampler,
    make_stopper,
    stopper_patience,
)
from search_spaces.dimensions import Choice, Float, Int

REQUIRED_KEYWORDS: dict[str, dict[str, Any]] = {
    "percentile": {"percentile": 25.0},
    "threshold": {"upper": 3.0},
    "patient": {"wrapped": "median"},
    "PatientPruner": {"wrapped": None},
}
NEEDS_ANOTHER_PACKAGE = {"cmaes"}


GRACE_KEYWORDS = {"HyperBandScheduler": "min_resource", "patient": "patience", "PatientPruner": "patience"}


@pytest.mark.parametrize("name", sorted(STOPPERS))
def test_every_stopper_can_be_used(name):
    grace_keyword = GRACE_KEYWORDS.get(name, "grace_steps" if name.islower() else "grace_period")
    choice = check_stopper({"name": name, grace_keyword: 7, **REQUIRED_KEYWORDS.get(name, {})})
    assert 7 in choice.keywords.values()
    assert type(make_stopper(choice)).__name__ == choice.class_name


def refused_keywords(check: Callable[..., object], *arguments: object) -> list[str]:
    """Return the keyword that each reason of a refusal names; a name or a combination has none."""
    with pytest.raises(InvalidSampler) as caught:
        check(*arguments)
    return [refusal.keyword for refusal in caught.value.faults]


@pytest.mark.parametrize("name", sorted(SAMPLERS.keys() - NEEDS_ANOTHER_PACKAGE - {"grid"}))
@pytest.mark.parametrize("objectives", [1, 2])
def test_every_sampler_can_be_used(name, objectives):
    check_sampler({"name": name}, objectives, (Choice((1, 2)),) if name == "bruteforce" else ())
    component = make_sampler(choose_sampler({"name": name}), 1)
    assert type(component).__name__ == SAMPLERS[name].class_name


def test_bruteforce_refuses_too_many_combinations():
    for domain in (Int(-9 * 10**18, 9 * 10**18), Float(0.0, 1.0, step=1e-15)):
        with pytest.raises(InvalidSampler, match="bruteforce"):
            check_sampler({"name": "bruteforce"}, 1, (domain,))


@pytest.mark.parametrize(
    ("settings", "keyword"),
    [
        ({"name": "percentile"}, ""),
        ({"name": "threshold", "lower": 2.0, "upper": 1.0}, ""),
        ({"name": "asha", "grace_steps": 3, "min_resource": 4}, "grace_steps"),
        ({"name": "PatientPruner", "wrapped": "median"}, ""),
        ({"name": "PatientPruner", "patience": 2, "wrapped": 3}, "wrapped"),
        ({"name": "PopulationBasedTraining"}, ""),
        ({"name": "ASHAScheduler", "max_t": 100}, "max_t"),
        ({"name": "ASHAScheduler", "time_attr": "t"}, "time_attr"),
        ({"name": "HyperBandScheduler", "max_t": 1, "min_resource": 1}, "max_t"),
    ],
)
def test_invalid_stoppers_are_refused(settings, keyword):
    assert refused_keywords(check_stopper, settings) == [keyword]


@pytest.mark.parametrize(
    ("settings", "equivalent"),
    [
        (
            {"name": "ASHAScheduler", "grace_period": 100, "reduction_factor": 3},
            {"name": "asha", "grace_steps": 100, "reduction": 3},
        ),
        (
            {"name": "HyperBandScheduler", "max_t": 81, "reduction_factor": 3},
            {"name": "hyperband", "max_resource": 81, "reduction": 3},
        ),
        (
            {"name": "MedianStoppingRule", "grace_period": 60, "min_samples_required": 3},
            {"name": "median", "grace_steps": 60, "n_min_trials": 3},
        ),
    ],
)
def test_ray_tune_schedulers_map_to_optuna_pruners(settings, equivalent):
    assert check_stopper(settings) == check_stopper(equivalent)


def test_every_scheduler_of_ray_tune_is_known():
    source = (Path(ray.__file__).parent / "tune" / "schedulers" / "__init__.py").read_text()
    names = set(re.findall(r'"(\w+)",', source)) - {"TrialScheduler", "create_scheduler"}
    assert names
    assert names <= {*STOPPERS, *STOPPER.refusal_by_name}


CUSTOM_CODE = """
import random
from optuna.pruners import BasePruner
from optuna.samplers import RandomSampler, TPESampler

class Spread(RandomSampler):
    def __init__(self, seed=None, spread: float = 1.0, words: list[str] | None = None):
        super().__init__(seed)
        if spread < 0:
            raise ValueError(f"spread must be at least 0, got {spread}")

class Restless(RandomSampler):
    def __init__(self):
        super().__init__(random.randrange(10**9))

def make_tpe(seed: int, **keywords):
    return TPESampler(seed=seed, **keywords)

class Late(BasePruner):
    def __init__(self, after: int = 3):
        self.after = after
    def prune(self, study, trial):
        return trial.last_step >= self.after

def make_spread(spread: float) -> "Spread":
    return Spread(0, spread)

def make_late(after: int = 3) -> BasePruner:
    return Late(after)

def erase(path: str):
    open(path, "w").close()

class NoSampler:
    pass

class Outside(RandomSampler):
    def sample_independent(self, study, trial, name, distribution):
        return 7

class OffStep(RandomSampler):
    def sample_independent(self, study, trial, name, distribution):
        return distribution.low + 0.3 if name == "x1" else distribution.low
"""


@pytest.fixture
def custom_module(tmp_path, monkeypatch):
    (tmp_path / "custom_samplers.py").write_text(CUSTOM_CODE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "custom_samplers", raising=False)


@pytest.mark.usefixtures("custom_module")
def test_custom_sampler_is_found_by_its_dotted_name():
    settings = {"name": "custom_samplers.Spread", "spread": 2, "words": ["a"]}
    check_sampler(settings, 1)
    assert type(make_sampler(choose_sampler(settings), 1)).__name__ == "Spread"
    check_sampler({"name": "custom_samplers:make_tpe", "multivariate": True}, 1)


@pytest.mark.usefixtures("custom_module")
def test_custom_stopper_is_found_by_its_dotted_name():
    choice = check_stopper({"name": "custom_samplers.Late", "after": 5})
    assert make_stopper(choice).after == 5  # type: ignore[attr-defined]
    assert stopper_patience(choice) == StopperPatience(0, 0, never_stops=False)


@pytest.mark.usefixtures("custom_module")
@pytest.mark.parametrize(
    ("settings", "keyword"),
    [
        ({"name": "GridSampler"}, ""),
        ({"name": "cmaes", "x0": 3}, "x0"),
        ({"name": "custom_samplers.NoSampler"}, ""),
        ({"name": "custom_samplers.Late"}, ""),
        ({"name": "custom_samplers.Restless"}, ""),
        ({"name": "custom_samplers.Spread", "spread": -1.0}, "spread"),
        ({"name": "custom_samplers.OffStep"}, ""),
    ],
)
def test_invalid_samplers_are_refused(settings, keyword):
    assert refused_keywords(check_sampler, settings, 1) == [keyword]


@pytest.mark.parametrize("check", [partial(check_sampler, objectives=1), check_stopper])
@pytest.mark.parametrize("name", ["os.system", "custom_samplers.erase"])
@pytest.mark.usefixtures("custom_module")
def test_functions_without_a_sampler_annotation_are_not_called(name, check, tmp_path):
    file = tmp_path / "made"
    keywords = {"command": f"touch {file}"} if name == "os.system" else {"path": str(file)}
    with pytest.raises(InvalidSampler):
        check({"name": name, **keywords})
    assert not file.exists()


@pytest.mark.usefixtures("custom_module")
def test_annotated_function_is_accepted():
    check_sampler({"name": "custom_samplers:make_spread", "spread": 2.0}, 1)
    assert check_stopper({"name": "custom_samplers:make_late", "after": 5}).keywords == {"after": 5}


@pytest.mark.parametrize(
    ("settings", "steps", "trials"),
    [
        ({"name": "asha", "grace_steps": 10, "min_early_stopping_rate": 2}, 160, 0),
        ({"name": "median"}, 0, 5),
        ({"name": "median", "grace_steps": 7, "n_startup_trials": 1, "n_min_trials": 4}, 7, 4),
    ],
)
def test_patience_is_read_from_keywords_and_defaults(settings, steps, trials):
    assert stopper_patience(choose_stopper(settings)) == StopperPatience(steps, trials, never_stops=False)
    assert stopper_patience(ComponentChoice("PercentilePruner", {"percentile": 100})).never_stops


def test_single_objective_sampler_is_refused_for_two_objectives(monkeypatch):
    class SingleObjectiveSampler(optuna.samplers.RandomSampler):
        """A sampler of one objective like CMA-ES, but without an extra package."""

        def infer_relative_search_space(self, study: optuna.Study, trial: Any) -> Any:
            self._raise_error_if_multi_objective(study)
            return super().infer_relative_search_space(study, trial)

    monkeypatch.setattr(optuna.samplers, "RandomSampler", SingleObjectiveSampler)
    check_sampler({"name": "random"}, 1)
    with pytest.raises(InvalidSampler, match=r"random .* 2: "):
        check_sampler({"name": "random"}, 2)


def test_every_refusal_is_reported_with_its_keyword():
    settings = {"name": "asha", "grace_steps": 0, "wrong": 1}
    assert refused_keywords(choose_stopper, settings) == ["grace_steps", "wrong"]
    settings = {"name": "PercentilePruner", "percentile": 20, "n_warmup_steps": -1, "n_min_trials": 0}
    assert refused_keywords(check_stopper, settings) == ["n_warmup_steps", "n_min_trials"]


@pytest.mark.usefixtures("custom_module")
def test_sampler_that_leaves_the_space_is_refused():
    with pytest.raises(InvalidSampler, match=r"x0 .*0\.1 .*0\.9, got 7"):
        check_sampler({"name": "custom_samplers.Outside"}, 1, [Float(0.1, 0.9)])


def test_patient_stopper_wraps_another_stopper():
    wrapped = {"name": "MedianPruner", "n_warmup_steps": 5}
    choice = check_stopper({"name": "patient", "patience": 1, "wrapped_pruner": wrapped})
    component = make_stopper(choice)
    assert isinstance(component, optuna.pruners.PatientPruner)
    assert isinstance(component._wrapped_pruner, optuna.pruners.MedianPruner)
    assert (stopper_patience(choice).steps, stopper_patience(choice).trials) == (5, 5)
