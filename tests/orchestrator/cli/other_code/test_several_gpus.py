"""A trial of a custom trainable gets several GPUs only if its module declares several_gpus."""

import pytest

from tests.support.training_code.own_code import forgotten

TRAINING_CODE = """
def train(settings, trial):
    trial.report(1, {"valid/accuracy": 0.5})
"""
SPEC = """name: own
question: How many GPUs has a trial?
trainable: gpus_of_ours:train
baseline: {width: 8}
arms: {one: {why: a try, set: {width: 9}}}
confirm: {seeds: [1, 2, 3]}
resources: {gpus: GPUS}
"""
TOO_MANY = (
    "7: resources.gpus: must be 1 or a part of 1 for gpus_of_ours:train, which does not say that one trial "
    "uses several"
)
ADVICE = "ask for one, or write haltsweep = {'several_gpus': True} in its module if it uses all"


@pytest.mark.parametrize(
    ("declaration", "gpus", "expected"),
    [
        ("", "0.5", None),
        ("", "1", None),
        ("haltsweep = {'several_gpus': True}", "2", None),
        (
            "",
            "2",
            f"{TOO_MANY}, got 2: {ADVICE}",
        ),
        (
            "haltsweep = {'several_gpus': False}",
            "4",
            f"{TOO_MANY}, got 4: {ADVICE}",
        ),
        (
            "haltsweep = {'several_gpus': [2]}",
            "2",
            "3: trainable: several_gpus of gpus_of_ours:train must be True or False, got [2]",
        ),
    ],
)
def test_several_gpus_require_a_declaration(tmp_path, monkeypatch, haltsweep, declaration, gpus, expected):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpus_of_ours.py").write_text(declaration + TRAINING_CODE)
    (tmp_path / "own.yaml").write_text(SPEC.replace("GPUS", gpus))
    with forgotten(tmp_path):
        result = haltsweep("check", "own.yaml")
    assert result.err.splitlines() == ([] if expected is None else [f"own.yaml:{expected}"])
    assert result.code == (0 if expected is None else 2)
