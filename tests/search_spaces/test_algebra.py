"""Dimensions exist under conditions, spaces admit params, merge, and keep the order of dependence."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.algebra import CyclicSpace, admits, exists, merge, order_dimensions, value_at
from search_spaces.dimensions import Choice, Constraint, Dimension, Fixed, Formula, Int, Space, When
from search_spaces.grid import combinations
from search_spaces.paths import MISSING

SETTINGS = {
    "task": {"length": 100},
    "model": {"chunk": {"by": "size", "size": 20}, "halt": None},
    "train": {},
}
SIZE = Dimension("model.chunk.size", Int(4, 64), (When("model.chunk.by", ("size", "both")),))


def test_params_override_settings() -> None:
    assert value_at("model.chunk.size", {}, SETTINGS) == 20
    assert value_at("model.chunk.size", {"model.chunk.size": 8}, SETTINGS) == 8
    assert value_at("model.halt.unit", {}, SETTINGS) is MISSING
    assert value_at("model.halt", {}, SETTINGS) is None


def test_dimension_exists_while_its_conditions_hold() -> None:
    assert exists(SIZE, {}, SETTINGS)
    assert exists(SIZE, {"model.chunk.by": "both"}, SETTINGS)
    assert not exists(SIZE, {"model.chunk.by": "count"}, SETTINGS)
    two_conditions = Dimension("model.b", Int(1, 2), (*SIZE.when, When("model.halt.unit", ("token",))))
    assert not exists(two_conditions, {}, SETTINGS)
    assert exists(Dimension("model.c", Int(1, 2), (When("model.halt", (None,)),)), {}, SETTINGS)
    assert not exists(Dimension("model.d", Int(1, 2), (When("model.none", (None,)),)), {}, SETTINGS)


@pytest.mark.parametrize(
    ("op", "right", "holds"),
    [
        ("<", 20, False),
        ("<=", 20, True),
        ("==", 20.0, True),
        ("!=", 20, False),
        (">=", "task.length", False),
        (">", "task.nowhere", True),
        (">", "model.halt", True),
    ],
)
def test_constraint_compares_values(op: str, right: str | float, holds: bool) -> None:
    assert admits(Constraint("model.chunk.size", op, right), {}, SETTINGS) is holds


def test_later_space_overrides_and_nothing_is_lost() -> None:
    low = Space((Dimension("model.a", Int(1, 2)), Dimension("model.b", Int(1, 2))))
    limit = Constraint("model.a", "<", "model.b")
    high = Space((Dimension("model.a", Fixed(9)), Dimension("model.c", Int(1, 2))), (limit,))
    merged = merge(low, high, Space((), (limit,)))
    assert merged.paths == ("model.a", "model.b", "model.c")
    assert merged["model.a"].domain == Fixed(9)
    assert merged.constraints == (limit,)


def test_cycle_of_conditions_is_reported() -> None:
    first_dimension = Dimension("model.a", Int(1, 2), (When("model.b", (1,)),))
    second_dimension = Dimension("model.b", Int(1, 2), (When("model.a", (1,)),))
    with pytest.raises(CyclicSpace):
        merge(Space((first_dimension,)), Space((second_dimension,)))


@given(count=st.integers(1, 12), seed=st.integers(0, 10**6))
def test_order_follows_only_dependence(count: int, seed: int) -> None:
    rng = random.Random(seed)
    dimensions = [
        Dimension(
            f"model.d{place}",
            Choice((0, 1)),
            tuple(
                When(f"model.d{first_dimension}", (1,))
                for first_dimension in range(place)
                if rng.random() < 0.3
            ),
        )
        for place in range(count)
    ]
    assert order_dimensions(dimensions) == tuple(dimensions)
    shuffled = rng.sample(dimensions, count)
    paths = [dimension.path for dimension in order_dimensions(shuffled)]
    assert sorted(paths) == sorted(dimension.path for dimension in dimensions)
    for dimension in dimensions:
        for condition in dimension.when:
            assert paths.index(condition.path) < paths.index(dimension.path)


def test_condition_can_refer_to_a_sampled_mapping() -> None:
    """The mapping is sampled first, independent of the written order."""
    optimizers = ({"name": "adam"}, {"name": "sgd"})
    momentum = Dimension("momentum", Fixed(0.9), (When("optimizer.name", ("sgd",)),))
    space = merge(Space((momentum, Dimension("optimizer", Choice(optimizers)))))
    assert space.paths == ("optimizer", "momentum")
    settings = {"optimizer": {"name": "adam"}, "momentum": 0.5}
    params_list = list(combinations(space, settings))
    assert params_list == [{"optimizer": optimizers[0]}, {"optimizer": optimizers[1], "momentum": 0.9}]
    only_sgd = Formula("optimizer.name == 'sgd'")
    assert [admits(only_sgd, params, settings) for params in params_list] == [False, True]
