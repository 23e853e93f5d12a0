"""Plans with gradient accumulation and activation checkpointing."""

from pathlib import Path
from typing import Any

import pytest

from tests.orchestrator.plan.small_specs import BASELINE, make_baseline, make_one_arm_spec, make_spec
from tests.support.specs.planned import plan
from tests.support.specs.refusals import expect_faults

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


def with_train(parts: dict[str, Any], **train: Any) -> dict[str, Any]:
    return {**parts, "train": {**parts["train"], **train}}


def test_accumulation_with_batch_costs_is_an_arm_with_a_note() -> None:
    sweep_plan = plan(make_one_arm_spec({"train.accumulate": 2}, baseline=SPARSE))
    assert sweep_plan.proofs[1].evidence == ("training",)
    assert any(" 2 parts " in note for note in sweep_plan.proofs[1].notes)
    assert not any(" 2 parts " in note for note in sweep_plan.proofs[0].notes)


def test_estimate_has_memory_of_a_part_and_work_of_a_batch() -> None:
    one_part, parts = (
        plan(make_spec(baseline=with_train(make_baseline(), batch_size=64, accumulate=parts)))
        for parts in (1, 16)
    )
    first, second = one_part.prices[0], parts.prices[0]
    assert first.train_flops_max == second.train_flops_max
    assert second.peak_memory_bytes < first.peak_memory_bytes / 8


def test_checkpointed_activations_cost_a_forward_pass_and_save_memory() -> None:
    deep_baseline = make_baseline(max_layers=40)
    plain, checkpointed = (
        plan(make_spec(baseline=with_train(deep_baseline, batch_size=64, **changes)))
        for changes in ({}, {"checkpoint_activations": True})
    )
    first, second = plain.prices[0], checkpointed.prices[0]
    assert second.train_flops_max == first.train_flops_max * 4 / 3
    assert second.peak_memory_bytes < first.peak_memory_bytes / 4
    assert "checkpoint_activations" not in plain.baseline.settings["train"]


def test_trial_has_a_rank_for_every_gpu() -> None:
    two_gpus = plan(make_spec(resources={"gpus": 2}, baseline=with_train(make_baseline(), batch_size=64)))
    assert two_gpus.baseline.settings["train"]["ranks"] == 2
    one_gpu, no_gpu = (plan(make_spec(resources={"gpus": gpus})) for gpus in (1, 0))
    assert "ranks" not in one_gpu.baseline.settings["train"]
    assert [trial.trial_id for trial in one_gpu.trials] == [trial.trial_id for trial in no_gpu.trials]
    explicit = plan(make_spec(baseline=with_train(make_baseline(), batch_size=64, ranks=2)))
    assert explicit.prices[0].peak_memory_bytes == two_gpus.prices[0].peak_memory_bytes
    with expect_faults("conflicting-fields", "baseline.train.ranks"):
        plan(make_spec(resources={"gpus": 0.5}, baseline=with_train(make_baseline(), ranks=2)))


def test_model_without_layers_to_checkpoint_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plain_kit").mkdir()
    (tmp_path / "plain_kit" / "gru.py").write_text(
        Path("tests/outside/project/gru_kit/gru.py").resolve().read_text()
    )
    monkeypatch.syspath_prepend(tmp_path)
    make_baseline = {**BASELINE, "model": {"name": "plain_kit.gru", "width": 16}}
    with expect_faults("arm-cannot-be-trained", "baseline"):
        plan(make_spec(baseline=with_train(make_baseline, checkpoint_activations=True)))
