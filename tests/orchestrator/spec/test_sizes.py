"""A size that nothing could have is told of what is written, wherever in a spec that is."""

import pytest

from orchestrator.errors import OversizedSpec, SpecError
from orchestrator.plan.plan_input import read_plannable_spec
from orchestrator.spec.load import read_spec
from tests.orchestrator.spec.conftest import WHOLE

HUGE = "1000000000000000"
MOST = "must be at most 1,000,000,000, got 1,000,000,000,000,000"
DEEP = "must be at most 10,000, got 1,000,000"


def reported(path, *overrides, profile=None):
    with pytest.raises(OversizedSpec) as caught:
        read_plannable_spec(path, overrides, profile)
    assert str(caught.value).splitlines()[-1].startswith("mend these first: no arm was built yet")
    return [str(fault).replace(f"{path}:", "") for fault in caught.value.faults]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("batch_size: 128", f"batch_size: {HUGE}", f"baseline.train.batch_size: {MOST}"),
        ("steps: 20000", "steps: 1e18", "baseline.train.steps: must be at most 1,000,000,000, got 1e+18"),
        ("max_layers: 10", "max_layers: 1000000", f"baseline.model.max_layers: {DEEP}"),
        (
            "length_max: 100",
            f"length_max: 100, length_ranges: [[20, {HUGE}]]",
            f"baseline.task.length_ranges[0][1]: {MOST}",
        ),
        (
            "{model.gate: false}",
            "{model.max_layers: 1000000}",
            f"arms.minus-gate.set.model.max_layers: {DEEP}",
        ),
        ("[64, 128]", f"[64, {HUGE}]", f"grid.model.width[1]: {MOST}"),
        (
            "lr: {float: [1e-4, 2e-3], log: true}",
            "batch_size: {int: [1, 1000000000000000]}",
            f"search.also.train.batch_size.int[1]: {MOST}",
        ),
        (
            "lr: {float: [1e-4, 2e-3], log: true}",
            "batch_size: {choice: [1, 1000000000000000]}",
            f"search.also.train.batch_size.choice[1]: {MOST}",
        ),
        (
            "  seed: 0",
            f"  seed: 0\n  first: [{{train.batch_size: {HUGE}}}]",
            f"search.first[0].train.batch_size: {MOST}",
        ),
        (
            "posthoc: {model.halt.threshold: [0.1, 0.3, 0.5]}",
            f"posthoc: {{train.beam_size: [4, {HUGE}]}}",
            f"posthoc.train.beam_size[1]: {MOST}",
        ),
        (
            "train.steps: 100",
            f"train.steps: {HUGE}",
            f"baseline.train.steps: {MOST} (with the profile 'small')",
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
def test_wherever_it_stands_it_is_told_with_its_line(write, old, new, message):
    assert old in WHOLE
    text = WHOLE.replace(old, new, 1)
    line = text[: text.index(new) + len(new)].count("\n") + 1
    assert f"{line}: {message}" in reported(write(text))


def test_an_override_and_a_profile_are_told_as_such(whole):
    assert reported(whole, f"baseline.train.batch_size={HUGE}") == [
        f"override 'baseline.train.batch_size={HUGE}': baseline.train.batch_size: {MOST}"
    ]
    path = whole.with_name("deep.yaml")
    path.write_text(WHOLE.replace("baseline.train.steps: 100", "baseline.model.max_layers: 1000000"))
    assert reported(path, profile="small") == [f"41: baseline.model.max_layers: {DEEP}"]
    (digits,) = reported(whole, "baseline.train.steps=1" + "0" * 30)
    assert digits.endswith("must fit into 64 bits, got 1" + "0" * 30)
    (digits,) = reported(whole, "baseline.train.steps=1" + "0" * 9000)
    assert digits.endswith("cannot be read as a number, got '1" + "0" * 39 + "'")


def test_all_of_them_are_told_at_once_with_what_else_is_wrong_with_the_file(write):
    path = write(
        WHOLE.replace("batch_size: 128", f"batch_size: {HUGE}")
        .replace("steps: 20000", f"steps: {HUGE}")
        .replace("seed: 0", "sede: 0")
    )
    lines = reported(path)
    assert lines[:2] == [f"12: baseline.train.steps: {MOST}", f"12: baseline.train.batch_size: {MOST}"]
    assert lines[2].startswith("31: search.sede: is not a known key. Did you mean 'seed'?")
    assert len(lines) == 3


@pytest.mark.parametrize(
    "override",
    [
        "baseline.train.lr=10000000000",  # absurd, but no size, and a number that the field could have
        f"baseline.task.data_seed={2**40}",
        "baseline.model={name: mine.models, scale: 10000000000, max_layers: 1000000}",
    ],
)
def test_what_the_field_could_have_or_must_say_itself_is_left_to_the_planner(whole, override):
    assert read_plannable_spec(whole, [override]).spec.name


def test_a_model_from_outside_leaves_the_sizes_of_training_to_be_told(whole):
    outside = "baseline.model={name: mine.models, max_layers: 1000000}"
    assert reported(whole, outside, f"baseline.train.steps={HUGE}") == [
        f"override 'baseline.train.steps={HUGE}': baseline.train.steps: {MOST}"
    ]


def test_fields_of_an_own_trainable_may_be_as_large_as_it_likes(write):
    path = write(
        "name: own\nquestion: How large?\ntrainable: mine:train\n"
        f"baseline: {{model: {{max_layers: 1000000}}, train: {{steps: {HUGE}}}}}\nconfirm: {{seeds: [1]}}\n"
    )
    assert read_spec(path).spec.trainable == "mine:train"


@pytest.mark.slow
def test_arms_of_more_components_than_can_be_counted_are_told_at_once(write):
    names = [f"c{number}" for number in range(40)]
    # Unknown names so unlike the others that looking for what was meant by each takes a moment.
    unknown = [f"nowhere-{number:05}" for number in range(15_000 - len(names))]
    components = "".join(f"  {name}: {{why: x, set: {{model.gate: false}}}}\n" for name in names)

    def spec(names):
        return (
            "name: many\nquestion: How many?\nbaseline: {task: {name: listops}, model: {name: universal}}\n"
            f"components:\n{components}combine: {{of: [{', '.join(names)}], as: all}}\n"
            "confirm: {seeds: [1], splits: [near-iid]}\n"
        )

    most = "combine.of: must make at most 255 arms, got"
    (line, *_) = reported(write(spec(names)))
    assert f"{most} 1,099,511,627,775 of 40 components with all; name fewer" in line
    lines = reported(write(spec([*names, *unknown])))
    assert any(f"{most} about 10^4515 of 15000 components" in line for line in lines)


@pytest.mark.parametrize("override", ["search.trials_per_arm=0", "baseline=12"])
def test_a_fault_of_ordinary_size_is_no_oversized_spec(whole, override):
    with pytest.raises(SpecError) as caught:
        assert read_plannable_spec(whole, [override]).spec.name
    assert not isinstance(caught.value, OversizedSpec)


def test_a_spec_is_not_read_with_thousands_of_profiles(write):
    profiles = "".join(f"  p{number}: {{baseline.train.steps: nothing}}\n" for number in range(101))
    path = write(f"{WHOLE}{profiles}")
    line = WHOLE.splitlines().index("profiles:") + 1
    assert reported(path) == [
        f"{line}: profiles: must be at most 100, as the spec is read with each, got 102",
    ]
