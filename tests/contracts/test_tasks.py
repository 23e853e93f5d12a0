"""Contract of the built-in tasks, which are found by file name.

Each task has a module `tests/oracles/solvers/<name>_solver.py` with

SMALL      settings of a small version; building all of its splits takes about a second
RESEEDED   the same settings with another data seed
VARIANTS   optional: changed settings of further forms, by name
solve      the function that `trainables.testing.TaskContract` describes
"""

import hashlib
import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest

from trainables import catalog, task_catalog
from trainables.testing import TaskContract, task_contract
from trainables.testing.task import Raw, rows, stored_splits
from trainables.types import Batch

TASKS = catalog.names("tasks")
HASHES = Path(__file__).parents[1] / "golden" / "data_hashes.json"
DRAWN = ((0, 0), (1, 1000))
"""Seeds and steps of streamed batches whose bytes are recorded."""


def oracle(name: str) -> ModuleType:
    return importlib.import_module(f"tests.oracles.solvers.{name}_solver")


class BoxContract(TaskContract):
    """The contract of user tasks and further tests."""

    # The recorded hashes show that other processes build the same bytes.
    test_another_process_builds_equal_bytes = None  # type: ignore[assignment]

    def every_rebuilt(self) -> dict[str, Raw]:
        """Return one form a task, because the recorded hashes cover all forms and another process."""
        return {"small": self.every_form()["small"]}

    def test_equal_settings_build_equal_bytes(self, rebuilt: Raw) -> None:  # type: ignore[override]
        super().test_equal_settings_build_equal_bytes(rebuilt)

    def test_settings_are_named_after_the_file(self) -> None:
        module = task_catalog.task_module(self.task)
        assert get_args(module.Config.model_fields["name"].annotation) == (self.task,)

    def test_splits_have_their_full_sizes(self) -> None:
        infos = task_catalog.splits(task_catalog.task_config({"name": self.task}))
        assert len({info.name for info in infos}) == len(infos)
        assert [info.role for info in infos].count("train") == 1

    def test_no_example_occurs_twice_in_a_split(self, form: Raw) -> None:
        for info, split in stored_splits(form).items():
            assert len(set(rows(split))) == len(split) or any(self.every_streamed()), info

    def test_every_class_is_trained_on(self, form: Raw) -> None:
        shape = task_catalog.shape(task_catalog.task_config(form))
        for info, split in stored_splits(form).items():
            if info.role == "train" and shape.end_id is None:
                assert set(split.label_histogram) == set(range(shape.num_classes))

    def test_bytes_equal_the_recorded_hashes(self, form: Raw) -> None:
        """Hashes are the same on all machines and with all versions of Python, NumPy and PyArrow.

        If this fails without an intended change, a library has changed the output of a generator. After an
        intended change, raise the task's VERSION, so that old stored data is not reused. Then, as for a new
        task, run `python -m tests.contracts.test_tasks` and read the diff.
        """
        (label,) = [label for label, raw in self.every_form().items() if raw == form]
        assert json.loads(HASHES.read_text()).get(form_key(self.task, label)) == hashes_of(form)

    def test_tasks_that_read_files_can_check_them(self) -> None:
        """The check does not read the files; a task without files has neither function."""
        module, config = task_catalog.task_module(self.task), self.every_form()["small"]
        assert hasattr(module, "require_files") == hasattr(module, "source_digest")
        task_catalog.require_files(task_catalog.task_config(config))
        if "folder" in module.Config.model_fields:
            nowhere = module.Config(folder="/nowhere/at all")
            for read_files in (task_catalog.require_files, module.source_digest):
                with pytest.raises(ValueError, match="folder"):
                    read_files(nowhere)


def contract(name: str) -> type[TaskContract]:
    solver = oracle(name)
    changed = {key: value for key, value in solver.RESEEDED.items() if solver.SMALL.get(key) != value}
    parts = {"forms": getattr(solver, "VARIANTS", {}), "reseeded": changed, "solve": solver.solve}
    return task_contract(name, solver.SMALL, contract=BoxContract, **parts)


CONTRACTS = {name: contract(name) for name in TASKS}
globals().update(
    {f"Test{name.title().replace('_', '')}": contract_class for name, contract_class in CONTRACTS.items()}
)


def form_key(task: str, form: str) -> str:
    """Return the key of a form in the recorded hashes."""
    return task if form == "small" else f"{task}, {form}"


def hashes_of(raw: Raw) -> dict[str, object]:
    """Return the hashes that identify all data of a form, byte for byte."""
    config = task_catalog.task_config(raw)
    hashes = {info.name: split.content_hash for info, split in stored_splits(raw).items()}
    for info in task_catalog.splits(config):
        for seed, step in DRAWN if info.streamed else ():
            batch = task_catalog.stream(config, 16, seed, step)
            hashes[f"{info.name}, seed {seed}, step {step}"] = digest(batch)
    return {"version": task_catalog.task_module(raw["name"]).VERSION, "hashes": hashes}


def digest(batch: Batch) -> str:
    """Return the hash of a batch, the same on every machine."""
    digest_ = hashlib.blake2b(digest_size=16)
    for part in (batch.tokens, batch.mask.long(), batch.labels):
        digest_.update(f"{tuple(part.shape)}".encode() + part.numpy().astype("<i8").tobytes())
    return digest_.hexdigest()


def all_hashes() -> dict[str, Any]:
    return {
        form_key(name, form): hashes_of(raw)
        for name, contract_class in CONTRACTS.items()
        for form, raw in contract_class().every_form().items()
    }


def test_recorded_hashes_have_only_existing_forms() -> None:
    forms = {
        form_key(name, form)
        for name, contract_class in CONTRACTS.items()
        for form in contract_class().every_form()
    }
    assert set(json.loads(HASHES.read_text())) == forms


if __name__ == "__main__":
    HASHES.write_text(json.dumps(all_hashes(), indent=2) + "\n")
