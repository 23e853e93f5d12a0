"""The names we accept are Optuna's own, and everything we accept can be made and used."""

import sys
from typing import Any

import optuna
import pytest

from orchestrator.samplers import (
    SAMPLERS,
    STOPPERS,
    SamplerRefused,
    check_sampler,
    check_stopper,
    chosen_sampler,
    chosen_stopper,
    constructors,
    make_sampler,
    make_stopper,
)

REQUIRED: dict[str, dict[str, float]] = {"percentile": {"percentile": 25.0}, "threshold": {"upper": 3.0}}
NEEDS_ANOTHER_PACKAGE = {"cmaes"}


@pytest.mark.parametrize("name", sorted(STOPPERS))
def test_every_stopper_can_be_used(name: str) -> None:
    chosen = check_stopper({"name": name, "grace_steps": 7, **REQUIRED.get(name, {})})
    assert 7 in chosen.keywords.values()
    assert type(make_stopper(chosen)).__name__ == chosen.class_name


@pytest.mark.parametrize("name", sorted(SAMPLERS.keys() - NEEDS_ANOTHER_PACKAGE))
@pytest.mark.parametrize("objectives", [1, 2])
def test_every_sampler_can_be_used(name: str, objectives: int) -> None:
    check_sampler({"name": name}, objectives)
    made = make_sampler(chosen_sampler({"name": name}), 1)
    assert type(made).__name__ == SAMPLERS[name].class_name


def test_short_names_are_of_classes_that_there_are() -> None:
    assert {alias.class_name for alias in SAMPLERS.values()} < set(constructors("samplers"))
    assert {alias.class_name for alias in STOPPERS.values()} < set(constructors("pruners"))


def test_friendly_keywords_become_optunas() -> None:
    chosen = chosen_stopper({"name": "asha", "grace_steps": 1000, "reduction": 3})
    assert chosen.class_name == "SuccessiveHalvingPruner"
    assert chosen.keywords == {"min_resource": 1000, "reduction_factor": 3}


def test_optunas_own_class_name_is_accepted() -> None:
    assert chosen_sampler({"name": "TPESampler", "multivariate": True}).keywords == {"multivariate": True}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"name": "tpee"}, r"no sampler named 'tpee'. Did you mean 'tpe'\? Known: cmaes, gp"),
        ({"name": "tpe", "seed": 3}, r"must not be given seed: .* search\.seed"),
        ({"name": "tpe", "gamma": 3}, r"sampler 'tpe' has no keyword 'gamma'"),
        ({"name": "tpe", "n_startup_trial": 3}, r"Did you mean 'n_startup_trials'\?"),
        ({"name": "tpe", "multivariate": "yes"}, r"multivariate must be None or bool, got 'yes'"),
        ({"name": "tpe", "n_startup_trials": True}, r"n_startup_trials must be int, got True"),
        ({"name": "tpe", "n_startup_trials": -1}, r"n_startup_trials must be at least 0, got -1"),
        ({"name": "tpe", "prior_weight": -1.0}, r"with prior_weight = -1.0: A non-negative"),
        ({"name": "nsga2", "crossover_prob": None}, r"crossover_prob must be float, got None"),
        ({"name": "nsga2", "population_size": 1}, r"with population_size = 1: .*greater than"),
        ({"name": "nsga2", "mutation_prob": 2.0}, r"with mutation_prob = 2.0: .*within the range"),
        ({"name": "qmc", "qmc_type": "sobel"}, r"'qmc' cannot be used with qmc_type = the text 'sobel'"),
        ({"name": "GridSampler"}, r"no sampler named 'GridSampler'"),
        (
            {"name": "NSGAIIISampler", "dividing_parameter": 0},
            r"dividing_parameter must be at least 1, got 0",
        ),
    ],
)
def test_samplers_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(SamplerRefused, match=message):
        check_sampler(given, 1)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"name": "asha", "grace_step": 3},
            r"Did you mean 'grace_steps'\? Known: bootstrap_count, grace_steps",
        ),
        ({"name": "asha", "reduction": 1}, r"reduction must be at least 2, got 1"),
        ({"name": "asha", "grace_steps": 2.5}, r"grace_steps must be int or str, got 2.5"),
        (
            {"name": "asha", "grace_steps": "five"},
            r"stopper 'asha' cannot be used with grace_steps = the text 'five': .*'auto'",
        ),
        ({"name": "asha", "grace_steps": "100"}, r"with grace_steps = the text '100': The value of"),
        ({"name": "asha", "bootstrap_count": 1}, r"'asha' cannot be used with bootstrap_count = 1: "),
        (
            {"name": "hyperband", "max_resource": "all"},
            r"max_resource = the text 'all': The 'max_resource' should be",
        ),
        ({"name": "hyperband", "max_resource": 0}, r"max_resource must be at least 1, got 0"),
        (
            {"name": "hyperband", "grace_steps": 9, "max_resource": 9},
            r"max_resource must be more than grace_steps, 9, got 9",
        ),
        ({"name": "median", "interval_steps": 0}, r"with interval_steps = 0: .*at least 1"),
        ({"name": "median", "grace_steps": -1}, r"with grace_steps = -1: .*negative"),
        ({"name": "percentile"}, r"must be given percentile"),
        ({"name": "percentile", "percentile": 101.0}, r"with percentile = 101.0: .*between 0 and 100"),
        ({"name": "threshold"}, r"stopper 'threshold' cannot be used as asked: .*lower or upper"),
        ({"name": "threshold", "lower": 2.0, "upper": 1.0}, r"cannot be used as asked: .*smaller"),
        ({"name": "WilcoxonPruner", "p_threshold": 2.0}, r"with p_threshold = 2.0: .*between 0 and 1"),
        ({"name": "asha", "grace_steps": 3, "min_resource": 4}, r"grace_steps is min_resource: give one"),
        ({"name": "PatientPruner"}, r"no stopper named 'PatientPruner'"),
    ],
)
def test_stoppers_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(SamplerRefused, match=message):
        check_stopper(given)


def test_a_sampler_whose_package_is_absent_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cmaes", None)
    with pytest.raises(SamplerRefused, match="needs the package cmaes: pip install cmaes"):
        check_sampler({"name": "cmaes"}, 1)


def test_a_sampler_of_one_objective_is_refused_for_two(monkeypatch: pytest.MonkeyPatch) -> None:
    class Single(optuna.samplers.RandomSampler):
        """Like CMA-ES, which needs a package of its own."""

        def infer_relative_search_space(self, study: optuna.Study, trial: Any) -> Any:
            self._raise_error_if_multi_objective(study)
            return super().infer_relative_search_space(study, trial)

    monkeypatch.setattr(optuna.samplers, "RandomSampler", Single)
    check_sampler({"name": "random"}, 1)
    with pytest.raises(
        SamplerRefused, match=r"random searches for one objective, got 2: choose nsga2 or tpe"
    ):
        check_sampler({"name": "random"}, 2)


def test_every_refusal_is_reported_with_its_keyword() -> None:
    with pytest.raises(SamplerRefused) as caught:
        chosen_stopper({"name": "asha", "grace_steps": 0, "wrong": 1})
    assert [refusal.keyword for refusal in caught.value.refusals] == ["grace_steps", "wrong"]
    with pytest.raises(SamplerRefused) as caught:
        check_stopper({"name": "PercentilePruner", "percentile": 20, "n_warmup_steps": -1, "n_min_trials": 0})
    assert [refusal.keyword for refusal in caught.value.refusals] == ["n_warmup_steps", "n_min_trials"]
