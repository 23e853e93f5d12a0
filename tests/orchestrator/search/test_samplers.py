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
    SAMPLER,
    SAMPLERS,
    STOPPER,
    STOPPERS,
    ComponentChoice,
    SamplerRefused,
    StopperPatience,
    chosen_sampler,
    chosen_stopper,
    constructors,
    make_sampler,
    make_stopper,
    patience,
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
def test_every_stopper_can_be_used(name: str) -> None:
    grace_keyword = GRACE_KEYWORDS.get(name, "grace_steps" if name.islower() else "grace_period")
    choice = check_stopper({"name": name, grace_keyword: 7, **REQUIRED_KEYWORDS.get(name, {})})
    assert 7 in choice.keywords.values()
    assert type(make_stopper(choice)).__name__ == choice.class_name


@pytest.mark.parametrize("name", sorted(SAMPLERS.keys() - NEEDS_ANOTHER_PACKAGE - {"grid"}))
@pytest.mark.parametrize("objectives", [1, 2])
def test_every_sampler_can_be_used(name: str, objectives: int) -> None:
    check_sampler({"name": name}, objectives, (Choice((1, 2)),) if name == "bruteforce" else ())
    component = make_sampler(chosen_sampler({"name": name}), 1)
    assert type(component).__name__ == SAMPLERS[name].class_name


def test_bruteforce_refuses_too_many_combinations() -> None:
    for domain in (Int(-9 * 10**18, 9 * 10**18), Float(0.0, 1.0, step=1e-15)):
        with pytest.raises(SamplerRefused, match="'bruteforce' keeps all combinations in memory"):
            check_sampler({"name": "bruteforce"}, 1, (domain,))


def test_short_names_refer_to_existing_classes() -> None:
    assert {alias.class_name for alias in SAMPLERS.values()} - {"grid"} <= set(constructors(SAMPLER))
    assert {alias.class_name for alias in STOPPERS.values()} < set(constructors(STOPPER))


def test_grid_has_no_keywords() -> None:
    check_sampler({"name": "grid"}, 2)
    assert chosen_sampler({"name": "grid"}).is_grid
    with pytest.raises(SamplerRefused, match=r"sampler 'grid' has no keyword 'seeds'. Known: none"):
        check_sampler({"name": "grid", "seeds": 3}, 1)


def test_short_keywords_map_to_optuna_keywords() -> None:
    choice = chosen_stopper({"name": "asha", "grace_steps": 1000, "reduction": 3})
    assert choice.class_name == "SuccessiveHalvingPruner"
    assert choice.keywords == {"min_resource": 1000, "reduction_factor": 3}


def test_optuna_class_name_is_accepted() -> None:
    assert chosen_sampler({"name": "TPESampler", "multivariate": True}).keywords == {"multivariate": True}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "tpee"}, r"no sampler named 'tpee'. Did you mean 'tpe'\? Known: bruteforce, cmaes, gp"),
        ({"name": "tpe", "seed": 3}, r"must not be given seed: .* search\.seed"),
        ({"name": "optuna.samplers.TPESamplr"}, r"samplers has no TPESamplr. Did you mean 'TPESampler'\?"),
        ({"name": "optuna.samplers.Zzz"}, r"samplers has no Zzz: module 'optuna.samplers' has no attribute"),
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
        ({"name": "GridSampler"}, r"'GridSampler' cannot be used: .* use grid"),
        ({"name": "PartialFixedSampler"}, r"no sampler named 'PartialFixedSampler'"),
        ({"name": "cmaes", "x0": 3}, r"x0 must be None or dict\[str, .*Any\], got 3"),
        (
            {"name": "NSGAIIISampler", "dividing_parameter": 0},
            r"dividing_parameter must be at least 1, got 0",
        ),
    ],
)
def test_invalid_samplers_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SamplerRefused, match=message):
        check_sampler(settings, 1)


@pytest.mark.parametrize(
    ("settings", "message"),
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
        ({"name": "PatientPruner", "wrapped": "median"}, r"must be given patience"),
        ({"name": "PatientPruner", "patience": 2}, r"must be given wrapped"),
        ({"name": "PatientPruner", "patience": 2, "wrapped": 3}, r"wrapped must be a stopper, or null"),
        (
            {"name": "PatientPruner", "patience": 2, "wrapped": {"name": "medain"}},
            r"wrapped: no stopper named 'medain'",
        ),
        (
            {"name": "PatientPruner", "patience": 2, "wrapped": {"name": "median", "interval_steps": 0}},
            r"cannot be used .*at least 1",
        ),
    ],
)
def test_invalid_stoppers_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SamplerRefused, match=message):
        check_stopper(settings)


@pytest.mark.parametrize(
    ("settings", "equivalent"),
    [
        (
            {"name": "ASHAScheduler", "grace_period": 100, "reduction_factor": 3},
            {"name": "asha", "grace_steps": 100, "reduction": 3},
        ),
        ({"name": "AsyncHyperBandScheduler"}, {"name": "asha"}),
        (
            {"name": "ray.tune.schedulers.ASHAScheduler", "grace_period": 7},
            {"name": "asha", "grace_steps": 7},
        ),
        ({"name": "ray.tune.schedulers.async_hyperband:AsyncHyperBandScheduler"}, {"name": "asha"}),
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
def test_ray_tune_schedulers_map_to_optuna_pruners(
    settings: dict[str, object], equivalent: dict[str, object]
) -> None:
    assert check_stopper(settings) == check_stopper(equivalent)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "PopulationBasedTraining"}, "cannot be used: it copies weights and settings"),
        ({"name": "ray.tune.schedulers.pb2.PB2"}, "cannot be used: it copies weights"),
        ({"name": "PB2"}, "'PB2' cannot be used: it copies weights"),
        ({"name": "FIFOScheduler"}, "it stops nothing; leave the stopper out"),
        ({"name": "HyperBandForBOHB"}, "use hyperband, and tpe as the sampler"),
        ({"name": "ResourceChangingScheduler"}, "resources says that of all"),
        ({"name": "ASHAScheduler", "max_t": 100}, "has no max_t here: a trial ends with its training"),
        ({"name": "ASHAScheduler", "brackets": 2}, "has no brackets here: choose hyperband"),
        ({"name": "ASHAScheduler", "time_attr": "t"}, "has no time_attr here: what is counted are steps"),
        ({"name": "HyperBandScheduler", "metric": "loss"}, "has no metric here: search.objectives names it"),
        (
            {"name": "HyperBandScheduler", "max_t": 1, "min_resource": 1},
            "max_t must be more than min_resource",
        ),
        ({"name": "MedianStoppingRule", "hard_stop": False}, "a trial that is stopped is not continued"),
        ({"name": "ASHAScheduler", "grace_perod": 1}, r"Did you mean 'grace_period'\?"),
    ],
)
def test_unsupported_ray_tune_schedulers_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SamplerRefused, match=message):
        check_stopper(settings)


@pytest.mark.parametrize("kind", ["schedulers", "schedulers.pb2"])
def test_every_scheduler_of_ray_tune_is_known(kind: str) -> None:
    source = Path(ray.__file__).parent / "tune" / f"{kind.replace('.', '/')}"
    file = source / "__init__.py" if source.is_dir() else source.with_suffix(".py")
    names = set(re.findall(r'"(\w+)",', file.read_text())) if source.is_dir() else {"PB2"}
    scheduler_names = {name for name in names if name not in {"TrialScheduler", "create_scheduler"}}
    for name in scheduler_names:
        assert name in {**STOPPERS, **STOPPER.instead}, name


CUSTOM_CODE = """
import random
from optuna.pruners import BasePruner
from optuna.samplers import RandomSampler, TPESampler

class Spread(RandomSampler):
    def __init__(self, seed=None, spread: float = 1.0, words: list[str] | None = None):
        super().__init__(seed)
        if spread < 0:
            raise ValueError(f"spread must be at least 0, got {spread}")

class Unseeded(RandomSampler):
    pass

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

number = 3
"""


@pytest.fixture
def custom_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "custom_samplers.py").write_text(CUSTOM_CODE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "custom_samplers", raising=False)


@pytest.mark.usefixtures("custom_module")
@pytest.mark.parametrize("name", ["custom_samplers.Spread", "custom_samplers:Spread"])
def test_custom_sampler_is_found_by_its_dotted_name(name: str) -> None:
    settings = {"name": name, "spread": 2, "words": ["a"]}
    check_sampler(settings, 1)
    assert type(make_sampler(chosen_sampler(settings), 1)).__name__ == "Spread"
    check_sampler({"name": "custom_samplers:make_tpe", "multivariate": True}, 1)


@pytest.mark.usefixtures("custom_module")
def test_custom_stopper_is_found_by_its_dotted_name() -> None:
    choice = check_stopper({"name": "custom_samplers.Late", "after": 5})
    assert make_stopper(choice).after == 5  # type: ignore[attr-defined]
    assert patience(choice) == StopperPatience(0, 0, keeps_all=False)


@pytest.mark.usefixtures("custom_module")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "custom_samplers.Main"}, "custom_samplers has no Main"),
        ({"name": "mine_of_sampler.Mine"}, "a sampler's module must be an existing module"),
        ({"name": "custom_samplers.number"}, "must be a class, got int"),
        (
            {"name": "custom_samplers.NoSampler"},
            r"it must be an optuna\.samplers\.BaseSampler, got NoSampler",
        ),
        ({"name": "custom_samplers.Late"}, r"it must be an optuna\.samplers\.BaseSampler, got Late"),
        ({"name": "custom_samplers.Restless"}, "a second instance with the same seed draws other values"),
        ({"name": "custom_samplers.Spread", "spread": "wide"}, "spread must be float, got 'wide'"),
        ({"name": "custom_samplers.Spread", "sprd": 1.0}, "has no keyword 'sprd'. Did you mean 'spread'"),
        ({"name": "custom_samplers.Spread", "spread": -1.0}, "with spread = -1.0: spread must be at least 0"),
        ({"name": "custom_samplers.Spread", "seed": 1}, "must not be given seed"),
        ({"name": "custom_samplers.OffStep"}, "must draw x1 from 0.0 to 1.0 in steps of 0.25, got 0.3"),
        ({"name": "custom_samplers.Spread", "words": [1]}, r"words must be None or list\[str\], got \[1\]"),
        ({"name": "custom_samplers:make_tpe", "multivariat": True}, "cannot be used with multivariat"),
    ],
)
def test_invalid_custom_samplers_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SamplerRefused, match=message):
        check_sampler(settings, 1)


@pytest.mark.parametrize("check", [partial(check_sampler, objectives=1), check_stopper])
@pytest.mark.parametrize("name", ["os.system", "subprocess.run", "custom_samplers.erase"])
@pytest.mark.usefixtures("custom_module")
def test_functions_without_a_sampler_annotation_are_not_called(
    name: str, check: Callable[[dict[str, object]], object], tmp_path: Path
) -> None:
    file = tmp_path / "made"
    keyword = {"os.system": "command", "subprocess.run": "args"}.get(name, "path")
    with pytest.raises(
        SamplerRefused, match=r"it must be an optuna\.\w+\.Base\w+, or a function that returns"
    ):
        check({"name": name, keyword: str(file) if keyword == "path" else f"touch {file}"})
    assert not file.exists()


@pytest.mark.usefixtures("custom_module")
def test_annotated_function_is_accepted() -> None:
    check_sampler({"name": "custom_samplers:make_spread", "spread": 2.0}, 1)
    assert check_stopper({"name": "custom_samplers:make_late", "after": 5}).keywords == {"after": 5}


@pytest.mark.usefixtures("custom_module")
def test_sampler_with_an_inherited_seed_is_seeded() -> None:
    check_sampler({"name": "custom_samplers.Unseeded"}, 1)


def test_full_optuna_name_is_accepted() -> None:
    assert chosen_sampler({"name": "optuna.samplers.TPESampler"}) == chosen_sampler({"name": "tpe"})


@pytest.mark.parametrize(
    ("settings", "steps", "trials"),
    [
        ({"name": "asha"}, 0, 0),
        ({"name": "asha", "grace_steps": 10, "min_early_stopping_rate": 2}, 160, 0),
        ({"name": "hyperband", "grace_steps": 9}, 9, 0),
        ({"name": "median"}, 0, 5),
        ({"name": "median", "grace_steps": 7, "n_startup_trials": 1, "n_min_trials": 4}, 7, 4),
        ({"name": "percentile", "percentile": 25.0}, 0, 5),
    ],
)
def test_patience_is_read_from_keywords_and_defaults(
    settings: dict[str, object], steps: int, trials: int
) -> None:
    assert patience(chosen_stopper(settings)) == StopperPatience(steps, trials, keeps_all=False)
    assert patience(ComponentChoice("PercentilePruner", {"percentile": 100})).keeps_all


def test_missing_package_of_a_sampler_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cmaes", None)
    with pytest.raises(SamplerRefused, match="needs the package cmaes: pip install cmaes"):
        check_sampler({"name": "cmaes"}, 1)


def test_single_objective_sampler_is_refused_for_two_objectives(monkeypatch: pytest.MonkeyPatch) -> None:
    class SingleObjectiveSampler(optuna.samplers.RandomSampler):
        """A sampler of one objective like CMA-ES, but without an extra package."""

        def infer_relative_search_space(self, study: optuna.Study, trial: Any) -> Any:
            self._raise_error_if_multi_objective(study)
            return super().infer_relative_search_space(study, trial)

    monkeypatch.setattr(optuna.samplers, "RandomSampler", SingleObjectiveSampler)
    check_sampler({"name": "random"}, 1)
    with pytest.raises(
        SamplerRefused, match=r"random searches for one objective, got 2: choose nsga2 or tpe"
    ):
        check_sampler({"name": "random"}, 2)


def test_every_refusal_is_reported_with_its_keyword() -> None:
    with pytest.raises(SamplerRefused) as error_info:
        chosen_stopper({"name": "asha", "grace_steps": 0, "wrong": 1})
    assert [refusal.keyword for refusal in error_info.value.refusals] == ["grace_steps", "wrong"]
    with pytest.raises(SamplerRefused) as error_info:
        check_stopper({"name": "PercentilePruner", "percentile": 20, "n_warmup_steps": -1, "n_min_trials": 0})
    assert [refusal.keyword for refusal in error_info.value.refusals] == ["n_warmup_steps", "n_min_trials"]


@pytest.mark.usefixtures("custom_module")
def test_sampler_that_leaves_the_space_is_refused() -> None:
    with pytest.raises(SamplerRefused, match=r"a sampler must draw x0 from 0.1 to 0.9, got 7"):
        check_sampler({"name": "custom_samplers.Outside"}, 1, [Float(0.1, 0.9)])


@pytest.mark.parametrize(
    "settings",
    [
        {"name": "PatientPruner", "patience": 1, "wrapped": "median"},
        {"name": "patient", "patience": 1, "wrapped_pruner": {"name": "MedianPruner", "n_warmup_steps": 5}},
        {"name": "optuna.pruners.PatientPruner", "patience": 1, "wrapped": {"name": "median"}},
    ],
)
def test_patient_stopper_wraps_another_stopper(settings: dict[str, object]) -> None:
    choice = check_stopper(settings)
    component = make_stopper(choice)
    assert isinstance(component, optuna.pruners.PatientPruner)
    assert isinstance(component._wrapped_pruner, optuna.pruners.MedianPruner)
    assert patience(choice).steps in (0, 5)
    assert patience(choice).trials == 5


def test_patient_stopper_may_wrap_no_stopper() -> None:
    component = make_stopper(check_stopper({"name": "PatientPruner", "patience": 2, "wrapped": None}))
    assert isinstance(component, optuna.pruners.PatientPruner)
    assert component._wrapped_pruner is None
