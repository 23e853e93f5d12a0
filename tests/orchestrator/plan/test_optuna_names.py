"""The names we accept are Optuna's own, and everything we accept can be built."""

import inspect
import subprocess
import sys

import pytest

from orchestrator.plan.optuna_names import (
    SAMPLERS,
    STOPPERS,
    Refused,
    chosen_sampler,
    chosen_stopper,
    constructors,
)

REQUIRED = {"percentile": {"percentile": 25.0}, "threshold": {"upper": 3.0}}
NEEDS_ANOTHER_PACKAGE = {"cmaes"}


@pytest.mark.parametrize("package", ["samplers", "pruners"])
def test_keywords_read_from_source_are_those_python_sees(package: str) -> None:
    optuna = pytest.importorskip(f"optuna.{package}")
    found = constructors(package)
    assert len(found) >= 6
    for name, parameters in found.items():
        signature = inspect.signature(getattr(optuna, name)).parameters
        assert set(parameters) == set(signature), name
        for key, parameter in parameters.items():
            assert parameter.required == (signature[key].default is inspect.Parameter.empty), (name, key)


@pytest.mark.parametrize("name", sorted(STOPPERS))
def test_every_stopper_can_be_built(name: str) -> None:
    pruners = pytest.importorskip("optuna.pruners")
    chosen = chosen_stopper({"name": name, "grace_steps": 7, **REQUIRED.get(name, {})})
    getattr(pruners, chosen.class_name)(**chosen.keywords)
    assert 7 in chosen.keywords.values()


@pytest.mark.parametrize("name", sorted(SAMPLERS.keys() - NEEDS_ANOTHER_PACKAGE))
@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_every_sampler_can_be_built(name: str) -> None:
    samplers = pytest.importorskip("optuna.samplers")
    chosen = chosen_sampler({"name": name})
    getattr(samplers, chosen.class_name)(**chosen.keywords, seed=1)


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
        ({"name": "nsga2", "crossover_prob": None}, r"crossover_prob must be float, got None"),
        ({"name": "nsga2", "population_size": 1}, r"population_size must be at least 2, got 1"),
        ({"name": "GridSampler"}, r"no sampler named 'GridSampler'"),
    ],
)
def test_samplers_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(Refused, match=message):
        chosen_sampler(given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"name": "asha", "grace_step": 3},
            r"Did you mean 'grace_steps'\? Known: bootstrap_count, grace_steps",
        ),
        ({"name": "asha", "reduction": 1}, r"reduction must be at least 2, got 1"),
        ({"name": "percentile"}, r"must be given percentile"),
        ({"name": "percentile", "percentile": 101.0}, r"percentile must be between 0 and 100, got 101.0"),
        ({"name": "threshold"}, r"must be given lower or upper"),
        ({"name": "PatientPruner"}, r"no stopper named 'PatientPruner'"),
    ],
)
def test_stoppers_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(Refused, match=message):
        chosen_stopper(given)


def test_a_sampler_whose_package_is_absent_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    constructors("samplers")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(Refused, match="needs the package cmaes: pip install cmaes"):
        chosen_sampler({"name": "cmaes"})


def test_every_refusal_is_reported_with_its_keyword() -> None:
    with pytest.raises(Refused) as caught:
        chosen_stopper({"name": "asha", "grace_steps": 0, "wrong": 1})
    assert [refusal.keyword for refusal in caught.value.refusals] == ["grace_steps", "wrong"]


def test_optuna_is_not_imported() -> None:
    code = (
        "import sys; from orchestrator.plan.optuna_names import chosen_sampler;"
        "chosen_sampler({'name': 'tpe'}); assert 'optuna' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
