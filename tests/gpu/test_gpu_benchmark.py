"""The benchmark that needs a GPU says so, and its measuring works where there is none."""

import argparse
import sys

import pytest
import torch

from tests.benchmarks import gpu, systems

TINY = {"width": 8, "heads": 2, "batch": 2, "length": 6, "repeats": 1, "warm_up": 0}


def test_without_cuda_it_measures_nothing_and_says_what_to_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(sys, "argv", ["gpu"])
    gpu.main()
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.strip() == gpu.REFUSAL


def test_a_row_is_measured_on_any_device() -> None:
    options = argparse.Namespace(device="cpu", precision="bf16", flash=False, **TINY)
    row = gpu.measure("gut", systems.SYSTEMS["gut"], options)
    assert row["step ms"] > 0
    assert row["peak MiB"] > 0
    assert row["flash gains"] == "-"
