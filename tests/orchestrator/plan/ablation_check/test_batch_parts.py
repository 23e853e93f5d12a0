"""What a plan says and refuses of batches that are run in parts, and of layers that are run again."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.errors import PlanError
from tests.orchestrator.plan.small import BASELINE, baseline, one_arm, spec
from tests.support.specs.planned import plan

SPARSE = {
    **BASELINE,
    "model": {
        "name": "sut",
        "width": 16,
        "max_layers": 2,
        "attention": {"experts": 3, "active": 2, "heads": 1, "head_width": 8},
        "feedforward": {"experts": 3, "active": 2, "width": 8},
    },
}
NORMED = """
from torch import nn
from trainables.models.transformer import Config as Of
from trainables.models.transformer import Encoder as Plain

class Config(Of):
    name: str = "norming_kit.normed"

class Encoder(Plain):
    def __init__(self, config):
        super().__init__(config)
        self.norm = nn.BatchNorm1d(config.width)

    def forward(self, x, mask):
        return super().forward(self.norm(x.transpose(1, 2)).transpose(1, 2), mask)
"""


def with_train(parts: dict[str, Any], **train: Any) -> dict[str, Any]:
    return {**parts, "train": {**parts["train"], **train}}


def test_where_all_costs_are_means_parts_are_no_arm() -> None:
    with pytest.raises(PlanError, match=r"arm changes nothing against baseline: with train\.accumulate set"):
        plan(one_arm({"train.accumulate": 2}))


def test_where_a_cost_is_of_the_batch_parts_are_an_arm_and_told() -> None:
    made = plan(one_arm({"train.accumulate": 2}, baseline=SPARSE))
    assert made.proofs[1].evidence == ("training",)
    shown = (
        "the balance of experts is that of each of 2 parts of a batch, as on so many GPUs, not of the batch"
    )
    assert shown in made.proofs[1].notes
    assert shown not in made.proofs[0].notes
    free = with_train(SPARSE, auxiliary_weight=0.0)
    with pytest.raises(PlanError, match="arm changes nothing against baseline"):
        plan(one_arm({"train.accumulate": 2}, baseline=free))


def test_memory_is_that_of_a_part_and_work_that_of_the_batch() -> None:
    whole, parts = (
        plan(spec(baseline=with_train(baseline(), batch_size=64, accumulate=parts))) for parts in (1, 16)
    )
    one, other = whole.prices[0], parts.prices[0]
    assert one.train_flops_max == other.train_flops_max
    assert other.peak_memory_bytes < one.peak_memory_bytes / 8


def test_layers_that_are_run_again_cost_a_forward_pass_and_save_memory() -> None:
    given = baseline(max_layers=40)
    whole, again = (
        plan(spec(baseline=with_train(given, batch_size=64, **more)))
        for more in ({}, {"checkpoint_activations": True})
    )
    one, other = whole.prices[0], again.prices[0]
    assert other.train_flops_max == one.train_flops_max * 4 / 3
    assert other.peak_memory_bytes < one.peak_memory_bytes / 4
    assert "checkpoint_activations" not in whole.baseline.settings["train"]


def test_a_trial_has_a_rank_for_every_gpu() -> None:
    many = plan(spec(resources={"gpus": 2}, baseline=with_train(baseline(), batch_size=64)))
    assert many.baseline.settings["train"]["ranks"] == 2
    one, none = (plan(spec(resources={"gpus": gpus})) for gpus in (1, 0))
    assert "ranks" not in one.baseline.settings["train"]
    assert [trial.trial_id for trial in one.trials] == [trial.trial_id for trial in none.trials]
    by_hand = plan(spec(baseline=with_train(baseline(), batch_size=64, ranks=2)))
    assert by_hand.prices[0].peak_memory_bytes == many.prices[0].peak_memory_bytes
    shown = (
        r"train\.ranks must be the GPUs of a trial, got ranks=2 and resources\.gpus=0\.5 in baseline: leave"
    )
    with pytest.raises(PlanError, match=shown):
        plan(spec(resources={"gpus": 0.5}, baseline=with_train(baseline(), ranks=2)))


def test_a_model_that_norms_over_a_batch_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "norming_kit").mkdir()
    (tmp_path / "norming_kit" / "normed.py").write_text(NORMED)
    monkeypatch.syspath_prepend(tmp_path)
    model = {"name": "norming_kit.normed", "width": 16, "heads": 2, "layers": 1}
    given = {**BASELINE, "model": model}
    shown = (
        "baseline cannot be trained: accumulate must be 1 for a model that norms over all samples of a batch"
    )
    with pytest.raises(PlanError, match=shown):
        plan(spec(baseline=with_train(given, accumulate=2)))


def test_a_model_without_layers_to_run_again_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plain_kit").mkdir()
    (tmp_path / "plain_kit" / "gru.py").write_text(
        Path("tests/outside/project/gru_kit/gru.py").resolve().read_text()
    )
    monkeypatch.syspath_prepend(tmp_path)
    given = {**BASELINE, "model": {"name": "plain_kit.gru", "width": 16}}
    shown = "baseline cannot be trained: checkpoint_activations must be false for a model without layers that"
    with pytest.raises(PlanError, match=shown):
        plan(spec(baseline=with_train(given, checkpoint_activations=True)))
