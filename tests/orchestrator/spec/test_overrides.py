"""Overrides of the form `key=value` are parsed, applied at their path, or refused."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import SpecError
from orchestrator.spec.load import load_spec, profile_names
from orchestrator.spec.overrides import BadOverride, parse, render, resolve
from search_spaces.dimensions import Float, Int

from .test_document import json

SPEC = {
    "arms": {"minus-gate": {"set": {"model.gate": False}}, "no-halt": {}},
    "search": {"also": {"train.lr": {}, "train.lr.more": {}}, "objectives": [{}]},
    "confirm": {"seeds": [1, 2]},
    "baseline": {"model": {"halt": None, "sizes": [[1, 2], 3]}},
}


@given(key=st.from_regex(r"[a-z]+(\.[a-z-]+|\[[0-9]\])*", fullmatch=True), value=json)
def test_rendered_override_is_parsed_back(key: str, value: Any) -> None:
    override = parse(render(key, value))
    assert (override.key, override.value) == (key, value)


@pytest.mark.parametrize(
    ("key", "keys"),
    [
        ("name", ("name",)),
        ("baseline.train.steps", ("baseline", "train", "steps")),
        ("baseline.model.new.deep", ("baseline", "model", "new", "deep")),
        ("baseline.model.sizes[0][1]", ("baseline", "model", "sizes", 0, 1)),
        ("confirm.seeds[1]", ("confirm", "seeds", 1)),
        ("search.objectives[0].goal", ("search", "objectives", 0, "goal")),
        ("search.sampler.n_startup_trials", ("search", "sampler", "n_startup_trials")),
        ("arms.minus-gate.why", ("arms", "minus-gate", "why")),
        ("arms.new-one", ("arms", "new-one")),
        ("arms.minus-gate.set.model.gate", ("arms", "minus-gate", "set", "model.gate")),
        ("arms.minus-gate.set.model.halt.unit", ("arms", "minus-gate", "set", "model.halt.unit")),
        ("search.also.train.lr", ("search", "also", "train.lr")),
        ("search.also.train.lr.log", ("search", "also", "train.lr", "log")),
        ("search.also.train.lr.more.log", ("search", "also", "train.lr.more", "log")),
        ("search.also.train.lr.float[0]", ("search", "also", "train.lr", "float", 0)),
        ("search.also.model.width", ("search", "also", "model.width")),
        ("grid.model.width", ("grid", "model.width")),
        ("posthoc.model.halt.threshold", ("posthoc", "model.halt.threshold")),
        ("resources.gpus", ("resources", "gpus")),
    ],
)
def test_keys_are_resolved_to_paths(key: str, keys: tuple[str | int, ...]) -> None:
    spec = {
        **SPEC,
        "search": {"also": {"train.lr": {"float": [0, 1]}, "train.lr.more": {}}, "objectives": [{}]},
    }
    assert resolve(key, spec) == keys


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("serch.seed", r"a spec has no key 'serch'. Did you mean 'search'\? Known: name, question, "),
        ("search.trials", r"search has no key 'trials'. Did you mean 'trials_per_arm'\? Known: spaces"),
        ("model.width", r"a spec has no key 'model'. Did you mean 'baseline.model'\? Known: name, "),
        ("sizes", r"a spec has no key 'sizes'. Did you mean 'baseline.model.sizes'\? Known: name, "),
        ("sampler", r"a spec has no key 'sampler'. Did you mean 'search.sampler'\? Known: name, question, "),
        ("seeds[0]", r"a spec has no key 'seeds'. Did you mean 'confirm.seeds'\? Known: name, question, "),
        ("confirm.seeds[2]", r"confirm.seeds has no position 2: its value is a list of 2"),
        ("confirm.seeds.first", r"confirm.seeds is a list of 2: select an item by a position like \[0\]"),
        ("arms.minus-gat.why", r"no arm named 'minus-gat'. Did you mean 'minus-gate'\?"),
        ("name.first", "name is null and has no parts: set it as one value"),
        (
            "baseline.model.sizes[1].x",
            r"baseline.model.sizes\[1\] is 3 and has no parts: set it as one value",
        ),
        ("confirm..seeds", r"must be names joined by single dots and positions like \[0\], got '..seeds'"),
        ("", r"must be names joined by single dots and positions like \[0\], got '.'"),
    ],
)
def test_unknown_path_is_refused(key: str, message: str) -> None:
    with pytest.raises(BadOverride, match=message):
        resolve(key, SPEC)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("confirm.seeds", "an override must be key=value, got 'confirm.seeds'"),
        ("=1", "an override must be key=value, got '=1'"),
        ("a=[1", "must be YAML, but while parsing a flow sequence"),
        ("a=.inf", "must be a finite number, got .inf"),
    ],
)
def test_text_that_is_no_override_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadOverride, match=message):
        parse(text)


def test_key_given_twice_in_an_override_has_no_line(whole: Path) -> None:
    with pytest.raises(SpecError, match=r"must be given once, got cpus twice$"):
        load_spec(whole, ["resources={cpus: 1, cpus: 2}"])


CUSTOM_SPEC = {
    "trainable": "job:train",
    "baseline": {"optimizer.lr": 1, "optimizer": {"lr": 2}, "layers": [{"size": 3}], "weight-decay": 0},
    "arms": {"dropout=0.5": {"set": {"a.b": 1}}, "w/o x": {}},
}


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("baseline.weight-decay=1", ("baseline", "weight-decay")),
        ("baseline.learning rate=1", ("baseline", "learning rate")),
        ("baseline.lr@head=1", ("baseline", "lr@head")),
        ("baseline.optimizer.lr=1", ("baseline", "optimizer.lr")),
        ("baseline.optimizer.beta=1", ("baseline", "optimizer", "beta")),
        ("baseline.layers.0.size=1", ("baseline", "layers", 0, "size")),
        ("baseline.layers[0].size=1", ("baseline", "layers", 0, "size")),
        ('arms."dropout=0.5".set.a.b=1', ("arms", "dropout=0.5", "set", "a.b")),
        ("arms.'dropout=0.5'.set.a.b=1", ("arms", "dropout=0.5", "set", "a.b")),
        ("arms.w/o x.why=1", ("arms", "w/o x", "why")),
        ('baseline."a.[b]=c".d=1', ("baseline", "a.[b]=c", "d")),
        ("baseline.it's=1", ("baseline", "it's")),
    ],
)
def test_custom_names_are_resolved(text: str, keys: tuple[str | int, ...]) -> None:
    override = parse(text)
    assert (resolve(override.key, CUSTOM_SPEC), override.value) == (keys, 1)


def test_overrides_change_every_kind_of_path(whole: Path) -> None:
    spec = load_spec(
        whole,
        [
            "baseline.train.steps=1e3",
            "baseline.model.halt.threshold=0.9",
            "confirm.seeds=[1, 2]",
            "confirm.seeds[0]=7",
            "arms.minus-global-halt=null",
            "arms.minus-gate.why='no gate'",
            "arms.token={why: other, set: {model.halt.unit: token}}",
            "search.also.train.lr.log=false",
            "search.also.model.heads={int: [1, 8]}",
            "search.stopper=null",
            "search.sampler=random",
            "resources.retries=0",
            "grid.model.width=null",
            "budget=null",
        ],
    )
    assert spec.baseline.train["steps"] == 1000.0
    assert spec.baseline.model["halt"] == {"unit": "sequence", "transition": True, "threshold": 0.9}
    assert spec.confirm is not None
    assert spec.confirm.seeds == (7, 2)
    assert list(spec.arms) == ["minus-gate", "no-halt", "token"]
    assert spec.arms["minus-gate"].why == "no gate"
    assert spec.search is not None
    assert [dimension.domain for dimension in spec.search.also] == [Float(1e-4, 2e-3), Int(1, 8)]
    assert (spec.search.stopper, spec.search.sampler) == (None, {"name": "random"})
    assert (spec.resources.retries, spec.resources.cpus, spec.grid, spec.budget) == (0, 1.0, {}, None)


def test_override_may_create_a_section(whole: Path) -> None:
    spec = load_spec(whole, ["search=null", "posthoc={}", "confirm=null", "confirm.seeds=[1]"])
    assert spec.search is None
    assert spec.confirm is not None
    assert spec.confirm.seeds == (1,)


def test_null_is_a_value_of_settings(whole: Path) -> None:
    spec = load_spec(whole, ["baseline.model.gate=null", "arms.minus-gate.set.model.gate=null"])
    assert spec.baseline.model["gate"] is None
    assert spec.arms["minus-gate"].set == {"model.gate": None}


def test_overrides_are_applied_after_the_profile(whole: Path) -> None:
    assert profile_names(whole) == ("small",)
    small = load_spec(whole, profile="small")
    assert small.baseline.train["steps"] == 100
    assert (small.grid, small.budget, small.profiles) == ({}, None, {})
    assert load_spec(whole, ["baseline.train.steps=7"], profile="small").baseline.train["steps"] == 7
    assert load_spec(whole).baseline.train["steps"] == 20000


@pytest.mark.parametrize(
    ("overrides", "profile", "messages"),
    [
        (
            ["search.trials_per_arm=0"],
            None,
            ["override 'search.trials_per_arm=0': search.trials_per_arm: must be an integer >= 1, got 0"],
        ),
        (
            ["confirm.seds=[1]", "bad", "arms.x=null"],
            None,
            [
                (
                    "override 'confirm.seds=[1]': confirm.seds: confirm has no key 'seds'. "
                    "Did you mean 'seeds'? Known: best, seeds, stop, splits, resample_data, "
                    "halting_examples, cross"
                ),
                "override 'bad': an override must be key=value, got 'bad'",
                (
                    "override 'arms.x=null': arms.x: arms has no 'x' to remove. "
                    "Known: minus-gate, minus-global-halt, no-halt"
                ),
            ],
        ),
        (
            ["search.also.train.lr.float=[1, 0]"],
            None,
            [
                (
                    "override 'search.also.train.lr.float=[1, 0]': search.also.train.lr.float: "
                    "low must be < high, got low=1.0, high=0.0"
                )
            ],
        ),
        (
            [],
            "smal",
            ["whole.yaml:39: profiles: no profile named 'smal'. Did you mean 'small'? Known: small"],
        ),
    ],
)
def test_faults_name_their_override(
    whole: Path,
    monkeypatch: pytest.MonkeyPatch,
    overrides: list[str],
    profile: str | None,
    messages: list[str],
) -> None:
    monkeypatch.chdir(whole.parent)
    with pytest.raises(SpecError) as caught:
        load_spec(Path(whole.name), overrides, profile)
    assert sorted(str(caught.value).split("\n")) == sorted(messages)
