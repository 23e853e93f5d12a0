"""What every task must keep. One is found by its file name and brings `tests/oracles/<name>_solver.py` with

SMALL      settings of a small version, every split built in a second or so
RESEEDED   the same with other data
solve      text of an input (what `decode` returns) -> label, or for a task of positions a label for each
           token, -1 where none is asked, or for a task of written answers the list of their tokens without
           the end; written without looking at the task
"""

import hashlib
import importlib
import inspect
import json
import math
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from itertools import combinations
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import numpy as np
import pytest
import torch

from trainables import catalog, tasks
from trainables.data.protocol import Role, SplitInfo
from trainables.data.split import Split, content_hash
from trainables.protocol import Job
from trainables.training import Training
from trainables.types import NOT_ASKED

TASKS = catalog.names("tasks")
each_task = pytest.mark.parametrize("name", TASKS)


def oracle(name: str) -> ModuleType:
    return importlib.import_module(f"tests.oracles.{name}_solver")


def build(raw: dict[str, object], split: str) -> Split:
    config = tasks.task_config(raw)
    module = tasks.task_module(str(raw["name"]))
    table, shape = module.build(config, split), module.shape(config)
    return Split(table, shape.pad_id, content_hash(table), shape.end_id)


@cache
def small(name: str) -> dict[SplitInfo, Split]:
    """Every split that is stored."""
    raw = oracle(name).SMALL
    infos = tasks.splits(tasks.task_config(raw))
    return {info: build(raw, info.name) for info in infos if not info.streamed}


def streamed(name: str) -> bool:
    return any(info.streamed for info in tasks.splits(tasks.task_config(oracle(name).SMALL)))


STREAMED = [name for name in TASKS if streamed(name)]
each_streamed_task = pytest.mark.parametrize("name", STREAMED)


def text(module: Any, config: Any, tokens: Sequence[int]) -> str:
    """An input as a person would write it."""
    own_words = "config" in inspect.signature(module.decode).parameters
    return str(module.decode(tokens, config) if own_words else module.decode(tokens))


def rows(split: Split) -> list[tuple[int, ...]]:
    batch = split.batch(np.arange(len(split)))
    return [
        tuple(row[:length]) for row, length in zip(batch.tokens.tolist(), split.lengths.tolist(), strict=True)
    ]


def test_there_are_tasks() -> None:
    assert "listops" in TASKS


@each_task
def test_settings_are_named_after_the_file(name: str) -> None:
    module = tasks.task_module(name)
    assert get_args(module.Config.model_fields["name"].annotation) == (name,)
    config = tasks.task_config(oracle(name).SMALL)
    assert tasks.task_config(config.model_dump(mode="json")) == config


@each_task
def test_splits_have_roles_and_names_of_their_own(name: str) -> None:
    for raw in ({"name": name}, oracle(name).SMALL):
        infos = tasks.splits(tasks.task_config(raw))
        assert len({info.name for info in infos}) == len(infos)
        assert {info.role for info in infos} <= set(get_args(Role))
        assert [info.role for info in infos].count("train") == 1
        assert [info.role for info in infos].count("valid") == 1


@each_task
def test_same_settings_same_bytes(name: str) -> None:
    """In a fresh process too, whatever order its sets and dictionaries have."""
    code = (
        "import importlib; from trainables import tasks; from trainables.data.split import content_hash;"
        f"raw = importlib.import_module('tests.oracles.{name}_solver').SMALL;"
        "config = tasks.task_config(raw); module = tasks.task_module(raw['name']);"
        "infos = [info for info in reversed(module.splits(config)) if not info.streamed];"
        "[print(content_hash(module.build(config, info.name))) for info in infos]"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env={"PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.split() == [split.content_hash for split in reversed(small(name).values())]


HASHES = Path(__file__).parents[1] / "golden" / "data_hashes.json"
DRAWN = ((0, 0), (1, 1000))
"""Seeds and steps of streamed batches whose bytes are recorded."""


def recorded(name: str) -> dict[str, object]:
    """What tells whether the small version of a task is still the same, byte for byte."""
    config = tasks.task_config(oracle(name).SMALL)
    found = {info.name: split.content_hash for info, split in small(name).items()}
    for info in tasks.splits(config):
        for seed, step in DRAWN if info.streamed else ():
            batch = tasks.stream(config, 16, seed, step)
            digest = hashlib.blake2b(digest_size=16)
            for part in (batch.tokens, batch.mask.long(), batch.labels):
                digest.update(f"{tuple(part.shape)}".encode() + part.numpy().astype("<i8").tobytes())
            found[f"{info.name}, seed {seed}, step {step}"] = digest.hexdigest()
    return {"version": tasks.task_module(name).VERSION, "hashes": found}


@each_task
def test_bytes_are_those_recorded(name: str) -> None:
    """Whatever the machine and the versions of Python, NumPy and PyArrow.

    If this fails without a change on purpose, a library changed what a generator makes. After one on purpose:
    raise the task's VERSION, so that no old copy is taken for the new data; then, as for a new task,
    `python -m tests.contracts.test_tasks`, and read the diff.
    """
    assert json.loads(HASHES.read_text()).get(name) == recorded(name)


@each_task
def test_another_seed_gives_other_data(name: str) -> None:
    for info, split in small(name).items():
        assert build(oracle(name).RESEEDED, info.name).content_hash != split.content_hash


@each_task
def test_no_example_occurs_twice(name: str) -> None:
    """Neither in a split nor in two of them. Where training never ends, tests hold nothing as short."""
    if streamed(name):
        longest = max(info.length_max for info in small(name) if info.role != "test")
        assert all(
            split.lengths.min() > longest for info, split in small(name).items() if info.role == "test"
        )
        return
    seen = {info.name: rows(split) for info, split in small(name).items()}
    for split, examples in seen.items():
        assert len(set(examples)) == len(examples), split
    for one, other in combinations(seen, 2):
        assert not set(seen[one]) & set(seen[other]), (one, other)


@each_task
def test_lengths_and_numbers_are_as_announced(name: str) -> None:
    for info, split in small(name).items():
        assert len(split) > 0
        assert info.examples in (None, len(split)), info
        assert info.length_min <= split.lengths.min() <= split.lengths.max() <= info.length_max, info


@each_task
def test_shape_agrees_with_the_data(name: str) -> None:
    shape = tasks.shape(tasks.task_config(oracle(name).SMALL))
    for info, split in small(name).items():
        ids = {token for row in rows(split) for token in row}
        assert ids <= set(range(shape.vocabulary_size)) - {shape.pad_id}, info
        assert set(split.label_histogram) <= set(range(shape.num_classes)) - {shape.end_id}, info
        if info.role == "train":
            assert split.lengths.max() <= shape.length_max
            if shape.end_id is None:
                assert set(split.label_histogram) == set(range(shape.num_classes))
            else:
                assert split.batch(np.arange(len(split))).labels.shape[1] <= shape.answer_length_max


@each_task
def test_labels_are_what_an_independent_solver_finds(name: str) -> None:
    module, config = tasks.task_module(name), tasks.task_config(oracle(name).SMALL)
    for info, split in small(name).items():
        labels: list[Any] = split.batch(np.arange(len(split))).labels.tolist()
        head = module.shape(config).head
        if head == "positions":
            labels = [row[:length] for row, length in zip(labels, split.lengths.tolist(), strict=True)]
        if head == "sequence":
            labels = [[token for token in row if token != NOT_ASKED][:-1] for row in labels]
        assert [oracle(name).solve(text(module, config, row)) for row in rows(split)] == labels, info


@each_task
def test_what_reads_files_can_tell_whether_they_are_there(name: str) -> None:
    """Without reading them: a task with nothing to read has neither function."""
    module, config = tasks.task_module(name), tasks.task_config(oracle(name).SMALL)
    assert hasattr(module, "require_files") == hasattr(module, "source_digest")
    tasks.require_files(config)
    if "folder" in module.Config.model_fields:
        nowhere = module.Config(folder="/nowhere/at all")
        for ask in (tasks.require_files, module.source_digest):
            with pytest.raises(ValueError, match=r"folder must hold .* put "):
                ask(nowhere)


@each_task
def test_an_unknown_split_is_refused(name: str) -> None:
    module = tasks.task_module(name)
    with pytest.raises(ValueError, match=f"{name} has no split 'trian'. Known: .*train"):
        module.build(tasks.task_config(oracle(name).SMALL), "trian")


@each_streamed_task
def test_streamed_batches_are_a_function_of_seed_and_step(name: str) -> None:
    config = tasks.task_config(oracle(name).SMALL)
    info = next(info for info in tasks.splits(config) if info.streamed)
    module, shape = tasks.task_module(name), tasks.shape(config)
    assert info.role == "train"
    batches = [
        tasks.stream(config, 6, seed, step) for seed, step in ((1, 0), (1, 10**6), (2, 10**6), (1, 10**6))
    ]
    assert len({tuple(batch.tokens.flatten().tolist()) for batch in batches}) == 3
    assert torch.equal(batches[1].tokens, batches[3].tokens)
    for batch in batches:
        lengths = batch.mask.sum(1)
        assert torch.equal(batch.mask, torch.arange(batch.mask.shape[1]) < lengths[:, None])
        assert torch.equal(batch.mask, batch.tokens != shape.pad_id)
        assert info.length_min <= lengths.min() <= lengths.max() <= info.length_max == shape.length_max
        for row, labels, length in zip(
            batch.tokens.tolist(), batch.labels.tolist(), lengths.tolist(), strict=True
        ):
            assert oracle(name).solve(text(module, config, row[:length])) == labels[:length]
    with pytest.raises(ValueError, match=rf"{name} has no split 'train'. Known: train \(streamed\)"):
        module.build(config, info.name)


@each_task
def test_a_model_trains_on_it_from_beginning_to_end(name: str, tmp_path: Path) -> None:
    """Two steps of a tiny model, validated, then measured on the first test split."""
    raw = oracle(name).SMALL
    config = tasks.task_config(raw)
    test = next(info.name for info in tasks.splits(config) if info.role == "test")
    model = {"name": "universal", "width": 8, "heads": 2, "max_layers": 2}
    settings = {
        "task": raw,
        "model": model | {"causal": tasks.shape(config).causal},
        "train": {"steps": 2, "batch_size": 3, "report_every": 2, "valid_examples": 5},
    }
    training = Training(Job(settings, seed=1, phase="confirm", splits=(test,), data_dir=tmp_path))
    metrics = training.advance().metrics
    assert training.finished
    for split in ("valid", test):
        assert 0 <= metrics[f"{split}/accuracy"] <= 1
        assert 0 < metrics[f"{split}/floor"] <= 1
        assert math.isfinite(metrics[f"{split}/loss"])


if __name__ == "__main__":
    HASHES.write_text(json.dumps({name: recorded(name) for name in TASKS}, indent=2) + "\n")
