"""Checkpoints restore tensors and numbers bit for bit, and refuse other content with a reason."""

from pathlib import Path

import pytest
import torch
from torch import nn

from trainables.checkpoint import (
    CheckpointError,
    load_weights,
    read_json,
    read_tensors,
    weights,
    write_json,
    write_tensors,
)


class Tied(nn.Module):
    def __init__(self, width: int = 3) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = self.first
        self.view = nn.Parameter(torch.randn(width, 2).T)
        self.register_buffer("steps", torch.tensor(0))


def test_weights_are_restored_exactly_and_tied_weights_are_stored_once(tmp_path: Path) -> None:
    model, other_model = Tied(), Tied()
    assert sorted(weights(model)) == ["first.bias", "first.weight", "steps", "view"]
    write_tensors(tmp_path / "w.safetensors", weights(model))
    load_weights(other_model, read_tensors(tmp_path / "w.safetensors"), tmp_path)
    for name, tensor in weights(model).items():
        assert torch.equal(weights(other_model)[name], tensor), name


def test_wrong_names_and_shapes_are_refused_without_changes() -> None:
    model = Tied()
    weights_before = {name: tensor.clone() for name, tensor in weights(model).items()}
    new_weights = {name: tensor + 1 for name, tensor in weights(model).items()}
    with pytest.raises(CheckpointError, match=r"here .*missing=\[\'steps\'\]"):
        load_weights(model, {name: t for name, t in new_weights.items() if name != "steps"}, Path("here"))
    with pytest.raises(CheckpointError, match=r"unexpected=\[\'third\'\]"):
        load_weights(model, new_weights | {"third": torch.zeros(1)}, Path("here"))
    with pytest.raises(CheckpointError, match=r"\(3, 2\) and model_shape=\(2, 3\) .*'view'"):
        load_weights(model, new_weights | {"view": torch.zeros(3, 2)}, Path("here"))
    assert all(torch.equal(tensor, weights_before[name]) for name, tensor in weights(model).items())


def test_numbers_are_restored_exactly(tmp_path: Path) -> None:
    value = {"a": 0.1 + 0.2, "b": 5e-324, "c": 2**60, "d": None, "e": ["x", True]}
    write_json(tmp_path / "s.json", value)
    assert read_json(tmp_path / "s.json") == value


def test_errors_name_damaged_and_missing_files(tmp_path: Path) -> None:
    (tmp_path / "w.safetensors").write_bytes(b"\x00" * 20)
    (tmp_path / "s.json").write_text("{")
    (tmp_path / "l.json").write_text("[1]")
    for name in ("w.safetensors", "none.safetensors"):
        with pytest.raises(CheckpointError, match=name):
            read_tensors(tmp_path / name)
    for name in ("s.json", "none.json"):
        with pytest.raises(CheckpointError, match=name):
            read_json(tmp_path / name)
    with pytest.raises(CheckpointError, match=r"l\.json .*list"):
        read_json(tmp_path / "l.json")
