"""Overrides of the form `key=value` are parsed, applied at their path, or refused."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import FaultCode, SpecError
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
    ("key", "quoted"),
    [
        ("serch.seed", "'serch'.*'search'"),
        ("confirm.seeds[2]", "confirm.seeds.* 2"),
        ("arms.minus-gat.why", "'minus-gat'.*'minus-gate'"),
        ("name.first", "name .*null"),
        ("confirm..seeds", r"\[0\].*'..seeds'"),
    ],
)
def test_unknown_path_is_refused_with_the_nearest_name(key: str, quoted: str) -> None:
    with pytest.raises(BadOverride, match=quoted) as caught:
        resolve(key, SPEC)
    assert caught.value.code == FaultCode.INVALID_OVERRIDE


@pytest.mark.parametrize("text", ["confirm.seeds", "a=[1", "a=.inf"])
def test_text_that_is_no_override_is_refused(text: str) -> None:
    with pytest.raises(BadOverride):
        parse(text)


CUSTOM_SPEC = {
    "trainable": "job:train",
    "baseline": {"optimizer.lr": 1, "optimizer": {"lr": 2}, "layers": [{"size": 3}], "weight-decay": 0},
    "arms": {"dropout=0.5": {"set": {"a.b": 1}}, "w/o x": {}},
}


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("baseline.learning rate=1", ("baseline", "learning rate")),
        ("baseline.optimizer.lr=1", ("baseline", "optimizer.lr")),
        ("baseline.optimizer.beta=1", ("baseline", "optimizer", "beta")),
        ("baseline.layers.0.size=1", ("baseline", "layers", 0, "size")),
        ("baseline.layers[0].size=1", ("baseline", "layers", 0, "size")),
        ('arms."dropout=0.5".set.a.b=1', ("arms", "dropout=0.5", "set", "a.b")),
        ('baseline."a.[b]=c".d=1', ("baseline", "a.[b]=c", "d")),
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
    assert spec.confirm.seeds == (7, 2)
    assert list(spec.arms) == ["minus-gate", "no-halt", "token"]
    assert spec.arms["minus-gate"].why == "no gate"
    assert [dimension.domain for dimension in spec.search.also] == [Float(1e-4, 2e-3), Int(1, 8)]
    assert (spec.search.stopper, spec.search.sampler) == (None, {"name": "random"})
    assert (spec.resources.retries, spec.resources.cpus, spec.grid, spec.budget) == (0, 1.0, {}, None)


def test_overrides_are_applied_after_the_profile(whole: Path) -> None:
    assert profile_names(whole) == ("small",)
    small = load_spec(whole, profile="small")
    assert small.baseline.train["steps"] == 100
    assert (small.grid, small.budget, small.profiles) == ({}, None, {})
    assert load_spec(whole, ["baseline.train.steps=7"], profile="small").baseline.train["steps"] == 7
    assert load_spec(whole).baseline.train["steps"] == 20000


@pytest.mark.parametrize(
    ("overrides", "profile", "expected"),
    [
        (["search.trials_per_arm=0"], None, [("invalid-value", "search.trials_per_arm", 0)]),
        (
            ["confirm.seds=[1]", "bad", "arms.x=null"],
            None,
            [
                ("invalid-override", "confirm.seds", 0),
                ("invalid-override", "", 1),
                ("invalid-override", "arms.x", 2),
            ],
        ),
        (["search.also.train.lr.float=[1, 0]"], None, [("invalid-value", "search.also.train.lr.float", 0)]),
        ([], "smal", [("unknown-name", "profiles", None)]),
    ],
)
def test_faults_name_their_override(
    whole: Path, overrides: list[str], profile: str | None, expected: list[tuple[str, str, int | None]]
) -> None:
    with pytest.raises(SpecError) as caught:
        load_spec(whole, overrides, profile)
    assert [(fault.code, fault.path, fault.file) for fault in caught.value.faults] == [
        (code, path, str(whole) if number is None else f"override {overrides[number]!r}")
        for code, path, number in expected
    ]
