"""What every task of the box promises. One is found by its file name and brings
`tests/oracles/<name>_solver.py` with

SMALL      settings of a small version, every split built in a second or so
RESEEDED   the same with other data
VARIANTS   further forms, if there are any: by name, what is set otherwise
solve      as `trainables.testing.TaskContract` describes it
"""

import hashlib
import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest

from trainables import catalog, task_catalog
from trainables.testing import TaskContract, task_contract
from trainables.testing.task import Raw, rows, stored
from trainables.types import Batch

TASKS = catalog.names("tasks")
HASHES = Path(__file__).parents[1] / "golden" / "data_hashes.json"
DRAWN = ((0, 0), (1, 1000))
"""Seeds and steps of streamed batches whose bytes are recorded."""


def oracle(name: str) -> ModuleType:
    return importlib.import_module(f"tests.oracles.solvers.{name}_solver")


class BoxContract(TaskContract):
    """Another process is asked once for all tasks; what is more than a promise to users is tested too."""

    test_another_process_builds_equal_bytes = None  # type: ignore[assignment]

    def every_rebuilt(self) -> dict[str, Raw]:
        """One a task: what this process and another make of any form is compared with what is recorded."""
        return {"small": self.every_form()["small"]}

    def test_equal_settings_build_equal_bytes(self, rebuilt: Raw) -> None:  # type: ignore[override]
        super().test_equal_settings_build_equal_bytes(rebuilt)

    def test_settings_are_named_after_the_file(self) -> None:
        module = task_catalog.task_module(self.task)
        assert get_args(module.Config.model_fields["name"].annotation) == (self.task,)

    def test_splits_of_the_full_size_are_told(self) -> None:
        infos = task_catalog.splits(task_catalog.task_config({"name": self.task}))
        assert len({info.name for info in infos}) == len(infos)
        assert [info.role for info in infos].count("train") == 1

    def test_no_example_occurs_twice_in_a_split(self, form: Raw) -> None:
        for info, split in stored(form).items():
            assert len(set(rows(split))) == len(split) or any(self.every_streamed()), info

    def test_every_class_is_trained_on(self, form: Raw) -> None:
        shape = task_catalog.shape(task_catalog.task_config(form))
        for info, split in stored(form).items():
            if info.role == "train" and shape.end_id is None:
                assert set(split.label_histogram) == set(range(shape.num_classes))

    def test_bytes_are_those_recorded(self, form: Raw) -> None:
        """Whatever the machine and the versions of Python, NumPy and PyArrow.

        If this fails without a change on purpose, a library changed what a generator makes. After one on
        purpose: raise the task's VERSION, so that no old copy is taken for the new data; then, as for a new
        task, `python -m tests.contracts.test_tasks`, and read the diff.
        """
        (label,) = [label for label, raw in self.every_form().items() if raw == form]
        assert json.loads(HASHES.read_text()).get(named(self.task, label)) == recorded(form)

    def test_what_reads_files_can_tell_whether_they_are_there(self) -> None:
        """Without reading them: a task with nothing to read has neither function."""
        module, config = task_catalog.task_module(self.task), self.every_form()["small"]
        assert hasattr(module, "require_files") == hasattr(module, "source_digest")
        task_catalog.require_files(task_catalog.task_config(config))
        if "folder" in module.Config.model_fields:
            nowhere = module.Config(folder="/nowhere/at all")
            for ask in (task_catalog.require_files, module.source_digest):
                with pytest.raises(ValueError, match="folder must hold"):
                    ask(nowhere)


def contract(name: str) -> type[TaskContract]:
    solver = oracle(name)
    changed = {key: value for key, value in solver.RESEEDED.items() if solver.SMALL.get(key) != value}
    parts = {"forms": getattr(solver, "VARIANTS", {}), "reseeded": changed, "solve": solver.solve}
    return task_contract(name, solver.SMALL, contract=BoxContract, **parts)


CONTRACTS = {name: contract(name) for name in TASKS}
globals().update({f"Test{name.title().replace('_', '')}": each for name, each in CONTRACTS.items()})


@pytest.mark.slow
def test_bytes_are_those_recorded_in_another_process_too() -> None:
    """Where sets have another order, the last task is built first, and of each its last split."""
    code = (
        "import json; from tests.contracts.test_tasks import CONTRACTS, named;"
        "from trainables.testing.task import contents;"
        "print(json.dumps({named(name, form): contents(raw) for name, each in reversed(CONTRACTS.items())"
        " for form, raw in each().every_form().items()}))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[2],
        env={"PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    )
    kept = json.loads(HASHES.read_text())
    found = json.loads(answer.stdout)
    assert found.keys() == kept.keys()
    for name, splits in found.items():
        of_splits = {split: kept[name]["hashes"].get(split) for split in splits}
        assert splits == of_splits, name


def named(task: str, form: str) -> str:
    """Key of a form in the recorded hashes."""
    return task if form == "small" else f"{task}, {form}"


def recorded(raw: Raw) -> dict[str, object]:
    """What tells whether the small version of a task is still the same, byte for byte."""
    config = task_catalog.task_config(raw)
    found = {info.name: split.content_hash for info, split in stored(raw).items()}
    for info in task_catalog.splits(config):
        for seed, step in DRAWN if info.streamed else ():
            batch = task_catalog.stream(config, 16, seed, step)
            found[f"{info.name}, seed {seed}, step {step}"] = digest(batch)
    return {"version": task_catalog.task_module(raw["name"]).VERSION, "hashes": found}


def digest(batch: Batch) -> str:
    """Hash of a batch, the same on every machine."""
    found = hashlib.blake2b(digest_size=16)
    for part in (batch.tokens, batch.mask.long(), batch.labels):
        found.update(f"{tuple(part.shape)}".encode() + part.numpy().astype("<i8").tobytes())
    return found.hexdigest()


def everything_recorded() -> dict[str, Any]:
    return {
        named(name, form): recorded(raw)
        for name, each in CONTRACTS.items()
        for form, raw in each().every_form().items()
    }


def test_nothing_is_recorded_that_is_not_there() -> None:
    forms = {named(name, form) for name, each in CONTRACTS.items() for form in each().every_form()}
    assert set(json.loads(HASHES.read_text())) == forms


if __name__ == "__main__":
    HASHES.write_text(json.dumps(everything_recorded(), indent=2) + "\n")
