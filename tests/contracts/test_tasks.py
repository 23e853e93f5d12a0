"""What every task must keep. One is found by its file name and brings `tests/oracles/<name>_solver.py` with

SMALL      settings of a small version, every split built in a second or so
RESEEDED   the same with other data
VARIANTS   further forms, if there are any: by name, what is set otherwise
solve      text of an input (what `decode` returns) -> label, or for a task of positions a label for each
           token, -1 where none is asked, or for a task of written answers the list of their tokens without
           the end; written without looking at the task. What a variant sets otherwise comes by keyword.
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
from typing import Any, NamedTuple, get_args

import numpy as np
import pytest
import torch

from trainables import catalog, task_catalog
from trainables.data.split import Split, content_hash
from trainables.protocol import Job
from trainables.task_protocol import Role, SplitInfo
from trainables.training import Training
from trainables.types import NOT_ASKED


class Case(NamedTuple):
    """A task in one of its forms."""

    name: str
    form: str

    @property
    def changes(self) -> dict[str, Any]:
        """What the form sets otherwise than `SMALL`."""
        return dict(variants(self.name)[self.form])

    @property
    def raw(self) -> dict[str, Any]:
        return oracle(self.name).SMALL | self.changes

    @property
    def reseeded(self) -> dict[str, Any]:
        return oracle(self.name).RESEEDED | self.changes

    @property
    def config(self) -> Any:
        return task_catalog.task_config(self.raw)

    def solve(self, text: str) -> Any:
        return oracle(self.name).solve(text, **self.changes)

    def __str__(self) -> str:
        return f"{self.name}, {self.form}" if self.form else self.name


def oracle(name: str) -> ModuleType:
    return importlib.import_module(f"tests.oracles.{name}_solver")


def variants(name: str) -> dict[str, dict[str, object]]:
    return {"": {}, **getattr(oracle(name), "VARIANTS", {})}


def build(raw: dict[str, object], split: str) -> Split:
    config = task_catalog.task_config(raw)
    module = task_catalog.task_module(str(raw["name"]))
    table, shape = module.build(config, split), module.shape(config)
    return Split(table, shape.pad_id, content_hash(table), shape.end_id)


@cache
def small(case: Case) -> dict[SplitInfo, Split]:
    """Every split that is stored."""
    infos = task_catalog.splits(case.config)
    return {info: build(case.raw, info.name) for info in infos if not info.streamed}


def streamed(case: Case) -> bool:
    return any(info.streamed for info in task_catalog.splits(case.config))


TASKS = catalog.names("tasks")
CASES = [Case(name, form) for name in TASKS for form in variants(name)]
each_task = pytest.mark.parametrize("name", TASKS)
each_case = pytest.mark.parametrize("case", CASES, ids=str)
each_streamed_case = pytest.mark.parametrize("case", [case for case in CASES if streamed(case)], ids=str)


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


@each_case
def test_settings_are_named_after_the_file(case: Case) -> None:
    module = task_catalog.task_module(case.name)
    assert get_args(module.Config.model_fields["name"].annotation) == (case.name,)
    assert task_catalog.task_config(case.config.model_dump(mode="json")) == case.config


@each_case
def test_splits_have_roles_and_names_of_their_own(case: Case) -> None:
    for raw in ({"name": case.name}, case.raw):
        infos = task_catalog.splits(task_catalog.task_config(raw))
        assert len({info.name for info in infos}) == len(infos)
        assert {info.role for info in infos} <= set(get_args(Role))
        assert [info.role for info in infos].count("train") == 1
        assert [info.role for info in infos].count("valid") == 1


@each_case
def test_settings_of_training_alone_change_no_split_that_is_measured(case: Case) -> None:
    for field in task_catalog.training_only(case.config):
        changed = {**case.raw, field: (getattr(case.config, field) or 0) + 7}
        assert task_catalog.task_config(changed) != case.config
        for info in task_catalog.splits(case.config):
            if info.role != "train":
                assert build(changed, info.name).content_hash == build(case.raw, info.name).content_hash


def content(case: Case) -> list[str]:
    """Hashes of all stored splits, each built anew, the last one first."""
    infos = [info for info in task_catalog.splits(case.config) if not info.streamed]
    return [build(case.raw, info.name).content_hash for info in reversed(infos)]


@cache
def content_elsewhere() -> dict[str, list[str]]:
    """That of all tasks in a fresh process, where sets have another order."""
    code = (
        "import json; from tests.contracts.test_tasks import CASES, content;"
        "print(json.dumps({str(case): content(case) for case in reversed(CASES)}))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env={"PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    found: dict[str, list[str]] = json.loads(answer.stdout)
    return found


@each_case
def test_same_settings_same_bytes(case: Case) -> None:
    assert content_elsewhere()[str(case)] == [split.content_hash for split in reversed(small(case).values())]


HASHES = Path(__file__).parents[1] / "golden" / "data_hashes.json"
DRAWN = ((0, 0), (1, 1000))
"""Seeds and steps of streamed batches whose bytes are recorded."""


def recorded(case: Case) -> dict[str, object]:
    """What tells whether the small version of a task is still the same, byte for byte."""
    config = case.config
    found = {info.name: split.content_hash for info, split in small(case).items()}
    for info in task_catalog.splits(config):
        for seed, step in DRAWN if info.streamed else ():
            batch = task_catalog.stream(config, 16, seed, step)
            digest = hashlib.blake2b(digest_size=16)
            for part in (batch.tokens, batch.mask.long(), batch.labels):
                digest.update(f"{tuple(part.shape)}".encode() + part.numpy().astype("<i8").tobytes())
            found[f"{info.name}, seed {seed}, step {step}"] = digest.hexdigest()
    return {"version": task_catalog.task_module(case.name).VERSION, "hashes": found}


@each_case
def test_bytes_are_those_recorded(case: Case) -> None:
    """Whatever the machine and the versions of Python, NumPy and PyArrow.

    If this fails without a change on purpose, a library changed what a generator makes. After one on purpose:
    raise the task's VERSION, so that no old copy is taken for the new data; then, as for a new task,
    `python -m tests.contracts.test_tasks`, and read the diff.
    """
    assert json.loads(HASHES.read_text()).get(str(case)) == recorded(case)


@each_case
def test_another_seed_gives_other_data(case: Case) -> None:
    for info, split in small(case).items():
        assert build(case.reseeded, info.name).content_hash != split.content_hash


@each_case
def test_no_example_occurs_twice(case: Case) -> None:
    """Neither in a split nor in two of them. Where training never ends, tests hold nothing as short."""
    if streamed(case):
        longest = max(info.length_max for info in small(case) if info.role != "test")
        assert all(
            split.lengths.min() > longest for info, split in small(case).items() if info.role == "test"
        )
        return
    seen = {info.name: rows(split) for info, split in small(case).items()}
    for split, examples in seen.items():
        assert len(set(examples)) == len(examples), split
    for one, other in combinations(seen, 2):
        assert not set(seen[one]) & set(seen[other]), (one, other)


@each_case
def test_lengths_and_numbers_are_as_announced(case: Case) -> None:
    for info, split in small(case).items():
        assert len(split) > 0
        assert info.examples in (None, len(split)), info
        assert info.length_min <= split.lengths.min() <= split.lengths.max() <= info.length_max, info


@each_case
def test_shape_agrees_with_the_data(case: Case) -> None:
    shape = task_catalog.shape(case.config)
    for info, split in small(case).items():
        ids = {token for row in rows(split) for token in row}
        assert ids <= set(range(shape.vocabulary_size)) - {shape.pad_id}, info
        assert set(split.label_histogram) <= set(range(shape.num_classes)) - {shape.end_id}, info
        if info.role == "train":
            assert split.lengths.max() <= shape.length_max
            if shape.end_id is None:
                assert set(split.label_histogram) == set(range(shape.num_classes))
            else:
                assert split.batch(np.arange(len(split))).labels.shape[1] <= shape.answer_length_max


@each_case
def test_labels_are_what_an_independent_solver_finds(case: Case) -> None:
    module, config = task_catalog.task_module(case.name), case.config
    for info, split in small(case).items():
        labels: list[Any] = split.batch(np.arange(len(split))).labels.tolist()
        head = module.shape(config).head
        if head == "positions":
            labels = [row[:length] for row, length in zip(labels, split.lengths.tolist(), strict=True)]
        if head == "sequence":
            labels = [[token for token in row if token != NOT_ASKED][:-1] for row in labels]
        assert [case.solve(text(module, config, row)) for row in rows(split)] == labels, info


@each_task
def test_what_reads_files_can_tell_whether_they_are_there(name: str) -> None:
    """Without reading them: a task with nothing to read has neither function."""
    module, config = task_catalog.task_module(name), task_catalog.task_config(oracle(name).SMALL)
    assert hasattr(module, "require_files") == hasattr(module, "source_digest")
    task_catalog.require_files(config)
    if "folder" in module.Config.model_fields:
        nowhere = module.Config(folder="/nowhere/at all")
        for ask in (task_catalog.require_files, module.source_digest):
            with pytest.raises(ValueError, match=r"folder must hold .* put "):
                ask(nowhere)


@each_task
def test_an_unknown_split_is_refused(name: str) -> None:
    module = task_catalog.task_module(name)
    with pytest.raises(ValueError, match=f"{name} has no split 'trian'. Known: .*train"):
        module.build(task_catalog.task_config(oracle(name).SMALL), "trian")


@each_streamed_case
def test_streamed_batches_are_a_function_of_seed_and_step(case: Case) -> None:
    config = case.config
    info = next(info for info in task_catalog.splits(config) if info.streamed)
    module, shape = task_catalog.task_module(case.name), task_catalog.shape(config)
    assert info.role == "train"
    batches = [
        task_catalog.stream(config, 6, seed, step)
        for seed, step in ((1, 0), (1, 10**6), (2, 10**6), (1, 10**6))
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
            assert case.solve(text(module, config, row[:length])) == labels[:length]
    with pytest.raises(ValueError, match=rf"{case.name} has no split 'train'. Known: train \(streamed\)"):
        module.build(config, info.name)


@each_case
def test_a_model_trains_on_it_from_beginning_to_end(case: Case, tmp_path: Path) -> None:
    """Two steps of a tiny model, validated, then measured on the first test split."""
    config = case.config
    test = next(info.name for info in task_catalog.splits(config) if info.role == "test")
    model = {"name": "universal", "width": 8, "heads": 2, "max_layers": 2}
    settings = {
        "task": case.raw,
        "model": model | {"causal": task_catalog.shape(config).causal},
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
    HASHES.write_text(json.dumps({str(case): recorded(case) for case in CASES}, indent=2) + "\n")
