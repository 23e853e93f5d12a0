"""Oversized values are reported with their line, wherever they are in a spec."""

import pytest

from orchestrator.errors import OversizedSpec, SpecError
from orchestrator.plan.plan_input import read_plannable_spec
from orchestrator.spec.load import read_spec
from tests.orchestrator.spec.conftest import WHOLE

HUGE = "1000000000000000"
TOO_LARGE = "must be at most 1,000,000,000, got 1,000,000,000,000,000"
TOO_DEEP = "must be at most 10,000, got 1,000,000"


def fault_lines(path, *overrides, profile=None):
    with pytest.raises(OversizedSpec) as caught:
        read_plannable_spec(path, overrides, profile)
    assert str(caught.value).splitlines()[-1].startswith("Correct these sizes first. ")
    return [str(fault).replace(f"{path}:", "") for fault in caught.value.faults]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("batch_size: 128", f"batch_size: {HUGE}", f"baseline.train.batch_size: {TOO_LARGE}"),
        ("steps: 20000", "steps: 1e18", "baseline.train.steps: must be at most 1,000,000,000, got 1e+18"),
        ("max_layers: 10", "max_layers: 1000000", f"baseline.model.max_layers: {TOO_DEEP}"),
        (
            "length_max: 100",
            f"length_max: 100, length_ranges: [[20, {HUGE}]]",
            f"baseline.task.length_ranges[0][1]: {TOO_LARGE}",
        ),
        (
            "{model.gate: false}",
            "{model.max_layers: 1000000}",
            f"arms.minus-gate.set.model.max_layers: {TOO_DEEP}",
        ),
        ("[64, 128]", f"[64, {HUGE}]", f"grid.model.width[1]: {TOO_LARGE}"),
        (
            "lr: {float: [1e-4, 2e-3], log: true}",
            "batch_size: {int: [1, 1000000000000000]}",
            f"search.also.train.batch_size.int[1]: {TOO_LARGE}",
        ),
        (
            "lr: {float: [1e-4, 2e-3], log: true}",
            "batch_size: {choice: [1, 1000000000000000]}",
            f"search.also.train.batch_size.choice[1]: {TOO_LARGE}",
        ),
        (
            "  seed: 0",
            f"  seed: 0\n  first: [{{train.batch_size: {HUGE}}}]",
            f"search.first[0].train.batch_size: {TOO_LARGE}",
        ),
        (
            "posthoc: {model.halt.threshold: [0.1, 0.3, 0.5]}",
            f"posthoc: {{train.beam_size: [4, {HUGE}]}}",
            f"posthoc.train.beam_size[1]: {TOO_LARGE}",
        ),
        (
            "train.steps: 100",
            f"train.steps: {HUGE}",
            f"baseline.train.steps: {TOO_LARGE} (with the profile 'small')",
        ),
        (
            "trials_per_arm: 24",
            f"trials_per_arm: {HUGE}",
            "search.trials_per_arm: must be at most 1,000,000,000, got 1000000000000000",
        ),
        (
            "seeds: [101, 102, 103]",
            "seeds: 1000000000",
            "confirm.seeds: must be seeds, or how many of them, from 1 to 10,000, got 1000000000",
        ),
        (
            "seeds: [101, 102, 103]",
            f"seeds: [{HUGE}]",
            f"confirm.seeds[0]: must be an integer from 0 to 2147483647, got {HUGE}",
        ),
        ("seed: 0", "seed: 1" + "0" * 30, "search.seed: must fit into 64 bits, got 1" + "0" * 30),
    ],
)
def test_oversized_value_is_reported_with_its_line(write, old, new, message):
    assert old in WHOLE
    text = WHOLE.replace(old, new, 1)
    line = text[: text.index(new) + len(new)].count("\n") + 1
    assert f"{line}: {message}" in fault_lines(write(text))


def test_oversized_value_of_an_override_or_profile_is_reported_as_such(whole):
    assert fault_lines(whole, f"baseline.train.batch_size={HUGE}") == [
        f"override 'baseline.train.batch_size={HUGE}': baseline.train.batch_size: {TOO_LARGE}"
    ]
    path = whole.with_name("deep.yaml")
    path.write_text(WHOLE.replace("baseline.train.steps: 100", "baseline.model.max_layers: 1000000"))
    assert fault_lines(path, profile="small") == [f"41: baseline.model.max_layers: {TOO_DEEP}"]
    (digits,) = fault_lines(whole, "baseline.train.steps=1" + "0" * 30)
    assert digits.endswith("must fit into 64 bits, got 1" + "0" * 30)
    (digits,) = fault_lines(whole, "baseline.train.steps=1" + "0" * 9000)
    assert digits.endswith("cannot be read as a number, got '1" + "0" * 39 + "'")


def test_all_oversized_values_are_reported_with_other_faults(write):
    path = write(
        WHOLE.replace("batch_size: 128", f"batch_size: {HUGE}")
        .replace("steps: 20000", f"steps: {HUGE}")
        .replace("seed: 0", "sede: 0")
    )
    lines = fault_lines(path)
    assert lines[:2] == [
        f"12: baseline.train.steps: {TOO_LARGE}",
        f"12: baseline.train.batch_size: {TOO_LARGE}",
    ]
    assert lines[2].startswith("31: search.sede: is not a known key. Did you mean 'seed'?")
    assert len(lines) == 3


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


def test_sizes_of_training_are_checked_for_a_custom_model(whole):
    custom_model = "baseline.model={name: mine.models, max_layers: 1000000}"
    assert fault_lines(whole, custom_model, f"baseline.train.steps={HUGE}") == [
        f"override 'baseline.train.steps={HUGE}': baseline.train.steps: {TOO_LARGE}"
    ]


def test_settings_of_a_custom_trainable_have_no_size_limits(write):
    path = write(
        "name: own\nquestion: How large?\ntrainable: mine:train\n"
        f"baseline: {{model: {{max_layers: 1000000}}, train: {{steps: {HUGE}}}}}\nconfirm: {{seeds: [1]}}\n"
    )
    assert read_spec(path).spec.trainable == "mine:train"


@pytest.mark.slow
def test_too_many_components_are_reported_at_once(write):
    names = [f"c{number}" for number in range(40)]
    # Finding the closest known name for very different unknown names takes some time.
    unknown = [f"nowhere-{number:05}" for number in range(15_000 - len(names))]
    components = "".join(f"  {name}: {{why: x, set: {{model.gate: false}}}}\n" for name in names)

    def make_spec_text(names):
        return (
            "name: many\nquestion: How many?\nbaseline: {task: {name: listops}, model: {name: universal}}\n"
            f"components:\n{components}combine: {{of: [{', '.join(names)}], as: all}}\n"
            "confirm: {seeds: [1], splits: [near-iid]}\n"
        )

    expected = "combine.of: must make at most 255 arms, got"
    (line, *_) = fault_lines(write(make_spec_text(names)))
    assert f"{expected} 1,099,511,627,775 of 40 components with all; name fewer" in line
    lines = fault_lines(write(make_spec_text([*names, *unknown])))
    assert any(f"{expected} about 10^4515 of 15000 components" in line for line in lines)


@pytest.mark.parametrize("override", ["search.trials_per_arm=0", "baseline=12"])
def test_fault_of_ordinary_size_is_no_oversized_spec(whole, override):
    with pytest.raises(SpecError) as caught:
        assert read_plannable_spec(whole, [override]).spec.name
    assert not isinstance(caught.value, OversizedSpec)


def test_spec_with_too_many_profiles_is_refused(write):
    profiles = "".join(f"  p{number}: {{baseline.train.steps: nothing}}\n" for number in range(101))
    path = write(f"{WHOLE}{profiles}")
    line = WHOLE.splitlines().index("profiles:") + 1
    assert fault_lines(path) == [
        f"{line}: profiles: must be at most 100, as the spec is read with each, got 102",
    ]
