"""Oversized values are reported with their line, wherever they are in a spec."""

import pytest

from orchestrator.errors import OversizedSpec
from orchestrator.plan.plan_input import read_plannable_spec
from orchestrator.spec.load import read_spec
from tests.orchestrator.spec.conftest import WHOLE

HUGE = "1000000000000000"


def faulty_places(path, *overrides, profile=None):
    """Return line (or the override in its place) and path of each fault."""
    with pytest.raises(OversizedSpec) as caught:
        read_plannable_spec(path, overrides, profile)
    return [(fault.line or fault.file, fault.path) for fault in caught.value.faults]


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("batch_size: 128", f"batch_size: {HUGE}", "baseline.train.batch_size"),
        ("max_layers: 10", "max_layers: 1000000", "baseline.model.max_layers"),
        ("{model.gate: false}", "{model.max_layers: 1000000}", "arms.minus-gate.set.model.max_layers"),
        (
            "  seed: 0",
            f"  seed: 0\n  first: [{{train.batch_size: {HUGE}}}]",
            "search.first[0].train.batch_size",
        ),
        ("train.steps: 100", f"train.steps: {HUGE}", "baseline.train.steps"),
        ("seed: 0", "seed: 1" + "0" * 30, "search.seed"),
    ],
)
def test_oversized_value_is_reported_with_its_line(write, old, new, path):
    assert old in WHOLE
    text = WHOLE.replace(old, new, 1)
    line = text[: text.index(new) + len(new)].count("\n") + 1
    assert (line, path) in faulty_places(write(text))


@pytest.mark.parametrize("value", [HUGE, "1" + "0" * 9000])
def test_oversized_value_of_an_override_is_reported_as_such(whole, value):
    ((place, path),) = faulty_places(whole, f"baseline.train.steps={value}")
    assert place.startswith("override 'baseline.train.steps=1000000")
    assert path in ("", "baseline.train.steps")


def test_all_oversized_values_are_reported_with_other_faults(write):
    text = WHOLE.replace("batch_size: 128", f"batch_size: {HUGE}").replace("steps: 20000", f"steps: {HUGE}")
    assert faulty_places(write(text.replace("seed: 0", "sede: 0"))) == [
        (12, "baseline.train.steps"),
        (12, "baseline.train.batch_size"),
        (31, "search.sede"),
    ]


@pytest.mark.parametrize(
    "override",
    [
        "baseline.train.lr=10000000000",  # unusual, but no size, and valid for the field
        f"baseline.task.data_seed={2**40}",
        "baseline.model={name: mine.models, scale: 10000000000, max_layers: 1000000}",
    ],
)
def test_valid_or_unknown_sizes_are_left_to_the_planner(whole, override):
    assert read_plannable_spec(whole, [override]).spec.name


def test_settings_of_a_custom_trainable_have_no_size_limits(write):
    path = write(
        "name: own\nquestion: How large?\ntrainable: mine:train\n"
        f"baseline: {{model: {{max_layers: 1000000}}, train: {{steps: {HUGE}}}}}\nconfirm: {{seeds: [1]}}\n"
    )
    assert read_spec(path).spec.trainable == "mine:train"


def test_spec_with_too_many_profiles_is_refused(write):
    profiles = "".join(f"  p{number}: {{baseline.train.steps: nothing}}\n" for number in range(101))
    path = write(f"{WHOLE}{profiles}")
    line = WHOLE.splitlines().index("profiles:") + 1
    assert faulty_places(path) == [(line, "profiles")]
