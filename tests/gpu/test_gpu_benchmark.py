"""The GPU benchmark refuses to run without a GPU, and its measuring works on any device."""

import argparse
import sys

import pytest
import torch

from tests.benchmarks import gpu, systems

TINY = {"width": 8, "heads": 2, "batch": 2, "length": 6, "repeats": 1, "warm_up": 0}


def test_benchmark_without_cuda_names_an_alternative(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu"])
    gpu.main()
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.strip() == gpu.REFUSAL


def test_benchmark_measures_a_row_on_any_device() -> None:
    options = argparse.Namespace(device="cpu", precision="bf16", flash=False, **TINY)
    row = gpu.measure("gut", systems.SYSTEMS["gut"], options)
    assert row["step ms"] > 0
    assert row["peak MiB"] > 0
    assert row["flash gains"] == "-"
