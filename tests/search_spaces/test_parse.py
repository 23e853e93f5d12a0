"""Ranges are parsed into dimensions and rendered again, and every fault of a mapping is found."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from search_spaces.dimensions import Choice, Dimension, Domain, Fixed, Float, Int, Powers, When
from search_spaces.parse import parse_space, render_space

scalars = (
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.floats(-1e9, 1e9) | st.text(max_size=8)
)
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,6}", fullmatch=True)
paths = st.builds(
    lambda root, parts: ".".join([root, *parts]),
    st.sampled_from(["task", "model", "train"]),
    st.lists(names, min_size=1, max_size=3),
)


@st.composite
def domains(draw: st.DrawFn) -> Domain:
    log = draw(st.booleans())
    match draw(st.sampled_from(["float", "int", "powers", "choice", "fixed"])):
        case "float":
            low, width = draw(st.floats(1e-6, 1e3)), draw(st.floats(1e-2, 1e3))
            step = None if log else draw(st.none() | st.floats(1e-3, width / 2))
            return Float(low, low + width, log, step)
        case "int":
            low, width = draw(st.integers(1, 1000)), draw(st.integers(1, 1000))
            return Int(low, low + width, log, 1 if log else draw(st.integers(1, min(9, width))))
        case "powers":
            low, factor = draw(st.integers(1, 100)), draw(st.integers(2, 10))
            high = low * factor ** draw(st.integers(1, 6))
            return draw(st.sampled_from([Powers(low, high, factor), Powers(float(low), float(high), factor)]))
        case "choice":
            return Choice(tuple(draw(st.lists(scalars, min_size=1, max_size=4, unique=True))))
        case _:
            return Fixed(draw(scalars))


@st.composite
def spaces(draw: st.DrawFn) -> tuple[Dimension, ...]:
    paths_ = draw(st.lists(paths, min_size=1, max_size=4, unique=True))
    values = st.lists(scalars, min_size=1, max_size=3).map(tuple)
    dimensions = []
    for place, path in enumerate(paths_):
        when = [When(parent_path, draw(values)) for parent_path in paths_[:place] if draw(st.booleans())]
        dimensions.append(Dimension(path, draw(domains()), tuple(when)))
    return tuple(dimensions)


@given(spaces())
def test_rendered_space_can_be_parsed(space: tuple[Dimension, ...]) -> None:
    assert parse_space(render_space(space)) == (space, ())


json = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
keys = st.sampled_from(["float", "int", "choice", "fixed", "log", "step", "when", "low"])


@given(
    st.dictionaries(paths | st.text(max_size=6), json | st.dictionaries(keys, json, max_size=4), max_size=3)
)
def test_any_mapping_is_parsed_or_refused(mapping: dict[str, Any]) -> None:
    dimensions, problems = parse_space(mapping)
    valid_paths = {dimension.path for dimension in dimensions}
    assert valid_paths | {problem.path[0] for problem in problems if problem.path} == set(mapping)
    assert all(problem.message for problem in problems)


def test_float_ranges_accept_integers_but_int_ranges_no_floats() -> None:
    dimensions, problems = parse_space({"train.lr": {"float": [0, 1]}, "model.width": {"int": [1, 2.0]}})
    assert dimensions == (Dimension("train.lr", Float(0.0, 1.0)),)
    assert isinstance(dimensions[0].domain, Float)
    assert isinstance(dimensions[0].domain.low, float)
    (problem,) = problems
    assert (problem.path, problem.message.endswith("got 2.0")) == (("model.width", "int", 1), True)
