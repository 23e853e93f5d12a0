"""Define the contract of a task: seeded, disjoint splits, declared lengths, usable batches."""

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
import torch

from trainables import catalog, task_catalog
from trainables.data.split import Split, content_hash
from trainables.field_effects import AffectsSplits, find_split_mark
from trainables.protocol import Job
from trainables.settings import Settings
from trainables.task_protocol import SplitInfo
from trainables.testing.contract import Contract, check, contract_class
from trainables.training import Training
from trainables.types import NOT_ASKED, Batch

TINY_MODEL: Final = {"width": 8, "heads": 2, "max_layers": 2}
TRAIN: Final = {"steps": 2, "batch_size": 3, "report_every": 2, "valid_examples": 5}
STREAMED_STEPS: Final = ((1, 0), (1, 10**6), (2, 10**6))
"""Seeds and steps of the tested streamed batches."""
SEED_FIELD: Final = "data_seed"
ROLE_ORDER: Final = ("valid", "train", "test")
"""Roles of splits by the cost of building them, tests last."""
Raw = dict[str, Any]
Row = tuple[int, ...]


class TaskContract(Contract):
    """Tests of a task in a small version, in each of its forms.

    A subclass sets `task`, and `settings` of a version that is built within seconds. It may set `forms`,
    `reseeded` and `solve`.
    """

    task: ClassVar[str] = ""
    """Name of the task, or dotted name of its module."""
    settings: ClassVar[Mapping[str, Any]] = {}
    """Settings of a small version: every split is built in about a second."""
    forms: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Further forms by name, as settings in addition to the small version."""
    reseeded: ClassVar[Mapping[str, Any] | None] = None
    """Additional settings that give other data of the same kind."""
    solve: ClassVar[Callable[..., Any] | None] = None
    """Independent solver, as `staticmethod`: returns the label for the text of an input, as `decode` returns
    it.

    For positions it returns a label per token, -1 without a target; for sequences the answer tokens without
    the end. Settings of a form are passed by keyword.
    """
    none: ClassVar[Mapping[str, str]] = {
        "solved": "no function solve: labels are not checked",
        "reseedable": f"no field {SEED_FIELD}, and nothing in reseeded: there are no other data",
        "streamed": "no split is streamed",
    }

    def every_form(self) -> dict[str, Raw]:
        """Return the full settings of each form by name."""
        if not self.task:
            raise ValueError("a contract must name its task, got none; set `task` in the class")
        small_settings = {"name": self.task} | dict(self.settings)
        settings_by_form = {
            form or "small": small_settings | dict(form_settings)
            for form, form_settings in {"": {}, **self.forms}.items()
        }
        for raw in settings_by_form.values():
            task_catalog.task_config(raw)
        return settings_by_form

    def every_solved(self) -> dict[str, tuple[Raw, Mapping[str, Any]]]:
        """Return the forms with their additional settings if `solve` is set; otherwise no form."""
        if self.solve is None:
            return {}
        return {form: (raw, self.forms.get(form, {})) for form, raw in self.every_form().items()}

    def every_reseedable(self) -> dict[str, Raw]:
        """Return the forms whose data another seed, or the setting `reseeded`, changes."""
        seeded = SEED_FIELD in catalog.config_class("tasks", self.task).model_fields
        return self.every_form() if seeded or self.reseeded else {}

    def every_streamed(self) -> dict[str, Raw]:
        """Return the forms with a streamed training split."""
        return {form: raw for form, raw in self.every_form().items() if is_streamed(raw)}

    def test_settings_survive_a_round_trip(self, form: Raw) -> None:
        """Check a round trip through JSON, the format of stored plans."""
        config = task_catalog.task_config(form)
        parsed_again = task_catalog.task_config(config.model_dump(mode="json"))
        check(
            parsed_again == config,
            f"settings written as JSON must be read as they were: {config!r}, {parsed_again!r}",
        )

    def test_splits_have_roles_and_unique_names(self, form: Raw) -> None:
        """Check that one split is for training, one for validation, and the others for tests."""
        try:
            task_catalog.splits(task_catalog.task_config(form))
        except ValueError as error:
            raise AssertionError(str(error)) from error

    def test_equal_settings_build_equal_bytes(self, form: Raw) -> None:
        """Check that splits built again in this process, the last one first, are identical."""
        for info, split in reversed([*stored_splits(form).items()]):
            is_same = build(form, info.name).content_hash == split.content_hash
            check(is_same, f"{info.name} must be the same whenever it is built, whatever was built before")

    def test_another_process_builds_equal_bytes(self) -> None:
        """Check a process in which sets have another order and no split was built before."""
        child_hashes = self.hash_in_child()
        for form, raw in self.every_form().items():
            hashes = {info.name: split.content_hash for info, split in stored_splits(raw).items()}
            changed = [name for name, digest in hashes.items() if child_hashes[form][name] != digest]
            message = (
                f"splits of {form} must be the same in every process, got others for {', '.join(changed)}"
            )
            check(not changed, message)

    def hash_in_child(self) -> dict[str, dict[str, str]]:
        """Return the hashes of all splits by form, from a separate process."""
        code = (
            "import json, sys; from trainables.testing.task import content_hashes;"
            "print(json.dumps({form: content_hashes(raw) for form, raw in json.load(sys.stdin).items()}))"
        )
        answer = subprocess.run(  # noqa: S603 - our own interpreter and module  # nosec B603
            [sys.executable, "-c", code],
            input=json.dumps(self.every_form()),
            env=os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            text=True,
            check=False,
        )
        check(answer.returncode == 0, f"all splits must be built in another process, got {answer.stderr}")
        hashes: dict[str, dict[str, str]] = json.loads(answer.stdout)
        return hashes

    def test_another_seed_gives_other_data(self, reseedable: Raw) -> None:
        """Check that every split differs for another seed."""
        seed = reseedable.get(SEED_FIELD, 0)
        other_settings = reseedable | dict({SEED_FIELD: seed + 1} if self.reseeded is None else self.reseeded)
        for info, split in stored_splits(reseedable).items():
            differs = build(other_settings, info.name).content_hash != split.content_hash
            check(differs, f"{info.name} must hold other data with another seed, got the same")

    def test_training_settings_change_no_evaluated_split(self, form: Raw) -> None:
        """Check the fields that the task lists in TRAINING_ONLY."""
        config = task_catalog.task_config(form)
        for field in task_catalog.training_only(config):
            changed = {**form, field: (getattr(config, field) or 0) + 7}
            for info, split in stored_splits(form).items():
                is_same = info.role == "train" or build(changed, info.name).content_hash == split.content_hash
                check(is_same, f"{info.name} must not depend on {field}, which is for training alone")

    def test_settled_settings_build_equal_data(self, form: Raw) -> None:
        """Check the normalised settings of the task's function `settled`."""
        config = task_catalog.task_config(form)
        settled = task_catalog.settled(config)
        check(
            task_catalog.settled(settled) == settled, f"settled must keep settled settings, got {settled!r}"
        )
        task_catalog.task_config(settled.model_dump(mode="json"))
        check(
            task_catalog.shape(settled) == task_catalog.shape(config), "settled settings have another shape"
        )
        infos = {info.name: info for info in task_catalog.splits(config)}
        settled_infos = {info.name: info for info in task_catalog.splits(settled)}
        check(
            infos == settled_infos,
            f"settled settings must have the same splits, got {settled_infos} for {infos}",
        )
        if settled == config:
            return
        settled_settings = settled.model_dump(mode="json")
        for info, split in stored_splits(form).items():
            is_same = build(settled_settings, info.name).content_hash == split.content_hash
            check(is_same, f"{info.name} must be the same with settled settings, {settled!r}")
        settled_batches = streamed_batches(settled)
        for key, batch in streamed_batches(config).items():
            is_same = torch.equal(batch.tokens, settled_batches[key].tokens)
            check(is_same, f"training batches must be the same with settled settings, {settled!r}")

    def test_fields_change_the_declared_splits(self) -> None:
        """Check that a field marked by AffectsSplits leaves other splits unchanged.

        Each number is increased by a fifth. A field that changes only tests must have a mark.
        """
        form = self.every_form()["small"]
        config = task_catalog.task_config(form)
        tests = {info.name for info in task_catalog.splits(config) if info.role == "test"}
        for field, changed in increased_fields(config):
            mark = find_split_mark(type(config), field)
            if mark is None:
                changed_names = find_changed_splits(form, changed)
                first_changed = next(changed_names, None)
                message = f"{field} changes only test splits: annotate it with AffectsSplits and their names"
                check(first_changed not in tests or any(name not in tests for name in changed_names), message)
            else:
                strange = {*find_changed_splits(form, changed, _affects_none(mark))}
                message = (
                    f"{field} is annotated with AffectsSplits{mark.patterns}, but changes {sorted(strange)}"
                )
                check(not strange, message)

    def test_no_example_is_in_two_splits(self, form: Raw) -> None:
        """Check stored splits; for streamed training, test inputs must be longer than training inputs."""
        if is_streamed(form):
            infos = task_catalog.splits(task_catalog.task_config(form))
            longest = max(info.length_max for info in infos if info.role != "test")
            for info, split in stored_splits(form).items():
                message = f"inputs of {info.name} must be longer than {longest}, got {split.lengths.min()}"
                check(info.role != "test" or split.lengths.min() > longest, message)
            return
        rows_by_split = {info.name: set(rows(split)) for info, split in stored_splits(form).items()}
        for first_name, second_name in combinations(rows_by_split, 2):
            num_shared = len(rows_by_split[first_name] & rows_by_split[second_name])
            check(not num_shared, f"{first_name} and {second_name} must share no example, got {num_shared}")

    def test_lengths_and_example_counts_match_the_declaration(self, form: Raw) -> None:
        """Check the declarations of `splits`, which need no data."""
        for info, split in stored_splits(form).items():
            message = f"{info.name} must hold {info.examples or 'some'} examples, got {len(split)}"
            check(len(split) > 0 and info.examples in (None, len(split)), message)
            shortest, longest = int(split.lengths.min()), int(split.lengths.max())
            message = f"inputs of {info.name} must have {info.length_min} to {info.length_max} tokens, got "
            check(
                info.length_min <= shortest <= longest <= info.length_max, f"{message}{shortest} to {longest}"
            )

    def test_shape_agrees_with_the_data(self, form: Raw) -> None:
        """Check ids of tokens and classes, and the longest training input and answer."""
        shape = task_catalog.shape(task_catalog.task_config(form))
        allowed, classes = set(range(shape.vocabulary_size)) - {shape.pad_id}, set(range(shape.num_classes))
        for info, split in stored_splits(form).items():
            strange = {token for row in rows(split) for token in row} - allowed
            message = (
                f"tokens of {info.name} must be ids below {shape.vocabulary_size} other than the padding's"
            )
            check(not strange, f"{message}, got {sorted(strange)}")
            strange = set(split.label_histogram) - (classes - {shape.end_id})
            message = f"labels of {info.name} must be below {shape.num_classes}, and not the end, got "
            check(not strange, f"{message}{sorted(strange)}")
            if info.role == "train":
                longest = int(split.lengths.max())
                message = f"training inputs must have at most {shape.length_max} tokens, got {longest}"
                check(longest <= shape.length_max, message)
                answer = 0 if split.answer_lengths is None else int(split.answer_lengths.max()) + 1
                message = f"training answers must have at most {shape.answer_length_max} tokens, got {answer}"
                check(answer <= (shape.answer_length_max or 0), message)

    def test_batches_are_right_padded(self, form: Raw) -> None:
        """Check batches of stored splits; every input must have at least one token."""
        config = task_catalog.task_config(form)
        for split in stored_splits(form).values():
            indices = np.arange(len(split))[:: max(1, len(split) // 16)]
            check_batch(split.batch(indices), task_catalog.shape(config).pad_id)

    def test_labels_match_an_independent_solver(self, solved: tuple[Raw, Mapping[str, Any]]) -> None:
        """Check every example of every stored split, and streamed batches."""
        raw, form_settings = solved
        assert self.solve is not None
        config = task_catalog.task_config(raw)
        for info, split in stored_splits(raw).items():
            for row, label in zip(rows(split), labels(config, split), strict=True):
                text = task_catalog.decode(config, row)
                solution = type(self).solve(text, **form_settings)  # type: ignore[misc]
                check(
                    solution == label, f"{info.name}: the label of {text!r} must be {solution}, got {label}"
                )
        for batch in streamed_batches(config).values():
            for row, length, label in zip(
                batch.tokens.tolist(), batch.mask.sum(1).tolist(), batch.labels.tolist(), strict=True
            ):
                text = task_catalog.decode(config, row[:length])
                solution = type(self).solve(text, **form_settings)  # type: ignore[misc]
                answer = label[:length] if isinstance(label, list) else label
                check(solution == answer, f"drawn: the label of {text!r} must be {solution}, got {answer}")

    def test_streamed_batches_are_a_function_of_seed_and_step(self, streamed: Raw) -> None:
        """Check that lengths are as declared, and that `build` refuses the streamed split."""
        config = task_catalog.task_config(streamed)
        info = next(info for info in task_catalog.splits(config) if info.streamed)
        shape = task_catalog.shape(config)
        check(info.role == "train", f"only the split to train on may be streamed, got role {info.role}")
        batches, repeated_batches = streamed_batches(config), streamed_batches(config)
        num_different = len({tuple(batch.tokens.flatten().tolist()) for batch in batches.values()})
        message = f"batches of the seeds and steps {STREAMED_STEPS} must differ, got {num_different} of them"
        check(num_different == len(STREAMED_STEPS), message)
        for (seed, step), batch in batches.items():
            is_same = torch.equal(batch.tokens, repeated_batches[seed, step].tokens)
            check(is_same, f"{step=} of {seed=} must draw the same batch again")
            check_batch(batch, shape.pad_id)
            shortest, longest = int(batch.mask.sum(1).min()), int(batch.mask.sum(1).max())
            message = f"streamed inputs must have {info.length_min} to {info.length_max} tokens, got "
            check(
                info.length_min <= shortest <= longest <= info.length_max, f"{message}{shortest} to {longest}"
            )

    def test_model_trains_on_the_task_to_the_end(self, form: Raw, tmp_path: Path) -> None:
        """Train a tiny model for two steps, validate it, and evaluate it on the first test split."""
        config = task_catalog.task_config(form)
        test = tuple(info.name for info in task_catalog.splits(config) if info.role == "test")[:1]
        model = {"name": "universal", **TINY_MODEL, "causal": task_catalog.shape(config).causal}
        settings = {"task": form, "model": model, "train": TRAIN}
        training = Training(Job(settings, seed=1, phase="confirm", splits=test, data_dir=tmp_path))
        metrics = training.advance().metrics
        for split in ("valid", *test):
            accuracy, floor, loss = (metrics[f"{split}/{name}"] for name in ("accuracy", "floor", "loss"))
            check(0 <= accuracy <= 1, f"{split}/accuracy must be from 0 to 1, got {accuracy}")
            check(0 < floor <= 1, f"{split}/floor must be above 0 and at most 1, got {floor}")
            check(math.isfinite(loss), f"{split}/loss must be finite, got {loss}")


def task_contract(
    name: str,
    settings: Mapping[str, Any] | None = None,
    *,
    contract: type[TaskContract] = TaskContract,
    **attributes: Any,
) -> type[TaskContract]:
    """Return a class of tests for the task `name`.

    Args:
        name: Name of the task, or dotted name of its module.
        settings: Settings of a small version.
        contract: Class to derive from: `TaskContract` or a subclass.
        **attributes: Further attributes of the contract.

    Raises:
        ImportError: pytest is not installed.
    """
    if (solve := attributes.get("solve")) is not None:
        attributes["solve"] = staticmethod(solve)
    return contract_class(contract, task=name, settings=settings or {}, **attributes)


def build(raw: Mapping[str, Any], split: str) -> Split:
    """Return one stored split, newly built."""
    config = task_catalog.task_config(raw)
    module = task_catalog.task_module(str(raw["name"]))
    table, shape = module.build(config, split), module.shape(config)
    return Split(table, shape.pad_id, content_hash(table), shape.end_id)


def stored_splits(raw: Mapping[str, Any]) -> Mapping[SplitInfo, Split]:
    """Return all splits that are not streamed, built once for all tests of a process."""
    return _stored_splits(json.dumps(raw, sort_keys=True))


@cache
def _stored_splits(raw: str) -> Mapping[SplitInfo, Split]:
    settings = json.loads(raw)
    infos = task_catalog.splits(task_catalog.task_config(settings))
    return {info: build(settings, info.name) for info in infos if not info.streamed}


def content_hashes(raw: Mapping[str, Any]) -> dict[str, str]:
    """Return the hashes of all stored splits, each newly built, the last one first."""
    infos = [info for info in task_catalog.splits(task_catalog.task_config(raw)) if not info.streamed]
    return {info.name: build(raw, info.name).content_hash for info in reversed(infos)}


def increased_fields(config: Settings) -> Iterator[tuple[str, Raw]]:
    """Yield each integer field together with settings in which only this field has a greater value."""
    dumped, settled = config.model_dump(mode="json"), task_catalog.settled(config)
    for field in type(config).model_fields:
        if type(value := getattr(settled, field)) is int:
            raw = {**dumped, field: value + max(1, value // 5)}
            with suppress(ValueError):
                task_catalog.task_config(raw)
                yield field, raw


def _affects_none(mark: AffectsSplits) -> Callable[[str], bool]:
    return lambda name: not mark.affects_any([name])


def find_changed_splits(
    settings: Raw, changed_settings: Raw, is_compared: Callable[[str], bool] = lambda _: True
) -> Iterator[str]:
    """Yield the names of stored splits that pass `is_compared` and differ between the two settings.

    Training comes before tests, because a split is built when it is compared.
    """
    splits_before = {info.name: (info, split) for info, split in stored_splits(settings).items()}
    splits_after = {
        info.name: info
        for info in task_catalog.splits(task_catalog.task_config(changed_settings))
        if not info.streamed
    }
    infos = {name: info for name, (info, _) in splits_before.items()} | splits_after
    for name in sorted(filter(is_compared, infos), key=lambda name: ROLE_ORDER.index(infos[name].role)):
        if (
            name not in splits_after
            or name not in splits_before
            or build(changed_settings, name).content_hash != splits_before[name][1].content_hash
        ):
            yield name


def is_streamed(raw: Mapping[str, Any]) -> bool:
    """Return whether the training split is streamed."""
    return any(info.streamed for info in task_catalog.splits(task_catalog.task_config(raw)))


def streamed_batches(config: Settings) -> dict[tuple[int, int], Batch]:
    """Return some training batches by (seed, step); empty if the training split is not streamed."""
    if not any(info.streamed for info in task_catalog.splits(config)):
        return {}
    return {(seed, step): task_catalog.stream(config, 6, seed, step) for seed, step in STREAMED_STEPS}


def rows(split: Split) -> list[Row]:
    """Return the tokens of each input, without padding."""
    batch = split.batch(np.arange(len(split)))
    lengths = split.lengths.tolist()
    return [tuple(row[:length]) for row, length in zip(batch.tokens.tolist(), lengths, strict=True)]


def labels(config: Settings, split: Split) -> list[Any]:
    """Return the expected results of a solver: labels, labels of tokens, or answers without end tokens."""
    label_lists: list[Any] = split.batch(np.arange(len(split))).labels.tolist()
    head = task_catalog.shape(config).head
    if head == "positions":
        return [row[:length] for row, length in zip(label_lists, split.lengths.tolist(), strict=True)]
    if head == "sequence":
        return [[token for token in row if token != NOT_ASKED][:-1] for row in label_lists]
    return label_lists


def check_batch(batch: Batch, pad_id: int) -> None:
    """Fail unless rows are right-padded with the padding id and have at least one token."""
    lengths = batch.mask.sum(1)
    expected_mask = torch.arange(batch.mask.shape[1]) < lengths[:, None]
    check(torch.equal(batch.mask, expected_mask), f"masks must be right-padded, got {batch.mask}")
    is_right_padded = torch.equal(batch.tokens != pad_id, batch.mask)
    check(
        is_right_padded,
        f"padding must have the id {pad_id}, and no token may, got {batch.tokens}, {batch.mask}",
    )
    check(int(lengths.min()) > 0, "every row must hold a token, got an empty one")
