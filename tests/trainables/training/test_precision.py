"""Products of matrices have the precision of the trial."""

from pathlib import Path

import pytest
import torch

from trainables.protocol import Job
from trainables.testing.resuming import TASK
from trainables.training import sources
from trainables.training.config import train_config


@pytest.mark.parametrize(
    ("precision", "products"), [("fp32", "highest"), ("tf32", "high"), ("bf16", "highest")]
)
def test_products_on_cuda_have_the_precision_of_the_trial(
    precision: str, products: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[str] = []
    monkeypatch.setattr(sources, "plan_no_shapes", lambda: None)
    monkeypatch.setattr(torch, "set_float32_matmul_precision", found.append)
    train = {"steps": 1, "precision": precision}
    job = Job({"task": TASK, "model": {"name": "transformer"}, "train": train}, 1, "search", (), tmp_path)
    sources.Sources(job, train_config(train), torch.device("cuda"))
    assert found == [products]
