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


@pytest.mark.parametrize(
    ("declaration", "gpus", "fault"),
    [
        ("", "1", ""),
        ("haltsweep = {'several_gpus': True}", "2", ""),
        ("", "2", "own.yaml:7: resources.gpus: "),
        ("haltsweep = {'several_gpus': [2]}", "2", "own.yaml:3: trainable: "),
    ],
)
def test_several_gpus_require_a_declaration(tmp_path, monkeypatch, haltsweep, declaration, gpus, fault):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpus_of_ours.py").write_text(declaration + TRAINING_CODE)
    (tmp_path / "own.yaml").write_text(SPEC.replace("GPUS", gpus))
    with forgotten(tmp_path):
        result = haltsweep("check", "own.yaml")
    assert result.code == (2 if fault else 0)
    assert result.err.startswith(fault)
    assert result.err.count("\n") == bool(fault)
