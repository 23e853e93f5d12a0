"""A spec file is read as a frozen spec, can be written back unchanged, and raises no traceback."""

import copy
import subprocess
import sys
import tempfile
from json import dumps
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import SpecError
from orchestrator.spec import scalars
from orchestrator.spec.document import read_text
from orchestrator.spec.load import load_spec, read_spec, to_yaml
from orchestrator.spec.types import Spec
from search_spaces.dimensions import Dimension, Float
from tests.support.processes.commands import TINY
from tests.support.specs.examples import examples
from tests.support.specs.refusals import expect_faults

from .conftest import WHOLE, Write
from .test_document import json

MINIMAL = """\
name: small
question: Does it train?
baseline: {task: {name: listops}, model: {name: universal}}
confirm: {seeds: [1]}
"""
MARKER = "Kx7Marker9Zq"
URL = f"https://ann:{MARKER}@host/data"


def test_all_sections_are_read(whole: Path) -> None:
    spec = load_spec(whole)
    assert spec.name == "gut-ablation-listops"
    assert spec.baseline.train == {"steps": 20000, "batch_size": 128, "lr": 5e-4, "ponder_weight": 0.1}
    assert spec.arms["no-halt"].set == {"model.halt": None}
    assert spec.arms["no-halt"].drop == ("model.halt.threshold", "train.ponder_weight")
    assert spec.grid == {"model.width": (64, 128)}
    assert spec.search.also == (Dimension("train.lr", Float(1e-4, 2e-3, log=True)),)
    assert spec.search.sampler == {"name": "tpe"}
    assert spec.search.stopper == {"name": "asha", "grace_steps": 1000, "reduction": 3}
    assert spec.confirm.splits == ("near-iid", "length-200-300")
    assert spec.posthoc == {"model.halt.threshold": (0.1, 0.3, 0.5)}
    assert (spec.resources.gpus, spec.resources.retries) == (0.25, 3)
    assert spec.budget.wall_clock_hours == 12
    row = {"arm": "baseline", "split": "near-iid", "metric": "accuracy", "value": 0.9, "source": "table 1"}
    assert spec.published_rows == (row | {"cell": {"model.width": 128}},)


def test_published_value_of_an_overridden_cell_is_omitted(whole: Path) -> None:
    assert len(load_spec(whole).published_rows) == 1
    assert load_spec(whole, ["grid.model.width=[64]"]).published_rows == ()
    assert load_spec(whole, profile="small").published_rows == ()
    with expect_faults("conflicting-fields", "published[0]"):
        load_spec(whole, ["published=[{arm: baseline, metric: accuracy, values: {lra: 0.5}, source: a}]"])


@pytest.mark.parametrize(
    ("override", "path"),
    [
        ("resources.silent_minutes=61", "resources.silent_minutes"),
        ("budget={flops: 1e9, each_arm: {flops: 2e9}}", "budget.each_arm.flops"),
    ],
)
def test_limit_behind_another_limit_is_refused(whole: Path, override: str, path: str) -> None:
    with expect_faults("conflicting-fields", path):
        load_spec(whole, [override])


def test_published_value_of_another_training_is_omitted(whole: Path) -> None:
    change = "baseline.train.steps=5"
    assert load_spec(whole, [change]).published_rows == ()
    row = "{arm: baseline, cell: {model.width: 64}, metric: accuracy, values: {lra: 0.5}, source: a}"
    assert load_spec(whole, [change, f"published=[{row}]"]).published_rows, "given with the change"
    assert load_spec(whole, ["confirm.seeds=[1]", "baseline.task.folder=elsewhere"]).published_rows


def test_fields_of_a_published_value_are_read(whole: Path, write: Write) -> None:
    fields = {
        "cell": {"model.width": 64},
        "posthoc": {"model.halt.threshold": 0.5},
        "metric": "accuracy",
        "statistic": "median",
        "values": {"lra": {"value": 0.5, "std": 0}, "iid": 1},
        "source": "a",
        "reference": {"paper": "000", "table": "Table 1", "system": "UT", "variant": "ours"},
    }
    spec = load_spec(whole, [f"published=[{dumps(fields)}]"])
    shared_fields = {
        "cell": fields["cell"],
        "posthoc": fields["posthoc"],
        "alone": True,
        "statistic": "median",
    }
    row = {"arm": "UT ours", "metric": "accuracy", "source": "a"} | shared_fields
    assert spec.published_rows == (
        row | {"split": "lra", "value": 0.5, "std": 0.0},
        row | {"split": "iid", "value": 1.0},
    )
    assert load_spec(write(to_yaml(spec), "copy.yaml")) == spec


def test_written_spec_reads_back_unchanged(whole: Path, write: Write) -> None:
    for profile in (None, "small"):
        spec = load_spec(whole, ["arms.minus-gate.why='3e-4'"], profile)
        copy_ = load_spec(write(to_yaml(spec), "copy.yaml"))
        assert copy_ == spec
        assert copy_.digest == spec.digest
        assert to_yaml(copy_) == to_yaml(spec)


def test_digest_depends_on_content_but_not_on_format(whole: Path, write: Write) -> None:
    spec = load_spec(whole)
    reworded = write("# a comment\n" + WHOLE.replace("sampler: tpe", "sampler: {name: tpe}"))
    assert load_spec(reworded).digest == spec.digest
    assert load_spec(whole, profile="small").digest != spec.digest
    assert load_spec(whole, ["search.seed=1"]).digest != spec.digest
    assert load_spec(whole, ["on_error=stop", "resources.silent_minutes=null"]).digest == spec.digest
    assert load_spec(whole, ["on_error=continue"]).digest != spec.digest


def test_later_faults_have_a_line(whole: Path) -> None:
    source = read_spec(whole, ["arms.no-halt.why=other"])
    keys = ("arms", "minus-global-halt", "set", "model.halt.unit")
    assert str(source.fault("is wrong", *keys)) == (
        f"{whole}:16: arms.minus-global-halt.set.model.halt.unit: is wrong"
    )
    assert source.fault("is wrong", "arms", "no-halt", "why").file == "override 'arms.no-halt.why=other'"


def test_profile_that_is_not_chosen_is_checked(write: Write) -> None:
    path = write(MINIMAL + "profiles:\n  large: {confirm.seeds: [1, 1]}\n  fine: {confirm.best: 1}\n")
    for profile in (None, "fine"):
        with expect_faults("invalid-value", "confirm.seeds") as caught:
            load_spec(path, profile=profile)
        assert [fault.line for fault in caught.value.faults] == [6]


def test_override_may_correct_the_file(write: Write) -> None:
    path = write(MINIMAL.replace("[1]", "[1, 1]"))
    assert load_spec(path, ["confirm.seeds=[1, 2]"]).confirm is not None


def test_reading_specs_imports_no_heavy_library() -> None:
    code = (
        "import sys, orchestrator.spec.load, orchestrator.spec.schema;"
        "heavy = {'torch', 'ray', 'mlflow', 'optuna', 'sqlalchemy', 'pyarrow', 'numpy'} & set(sys.modules);"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def _refused_or_read(text: str, overrides: list[str]) -> Spec | None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spec.yaml"
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        try:
            return load_spec(path, overrides)
        except SpecError as error:
            spec_error = error
    assert all(fault.message and fault.file for fault in spec_error.faults)
    assert len(str(spec_error).splitlines()) == len(spec_error.faults)
    return None


def _list_places(value: Any) -> list[tuple[Any, Any]]:
    """List the container and the key of every nested value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, inner in items for place in ((value, key), *_list_places(inner))]


@examples(40)
@given(st.data())
def test_corrupted_spec_is_refused_or_read(data: st.DataObject) -> None:
    """Replace, remove or rename some values of a valid spec; reading must return a spec or faults."""
    spec = copy.deepcopy(read_text(WHOLE, "whole").data)
    for _ in range(data.draw(st.integers(1, 3))):
        places = _list_places(spec)
        container, key = places[data.draw(st.integers(0, len(places) - 1))]
        match data.draw(st.sampled_from(["replace", "remove", "rename"])):
            case "replace":
                container[key] = data.draw(json)
            case "remove":
                del container[key]
            case _ if isinstance(container, dict):
                container[data.draw(st.text(max_size=6))] = container.pop(key)
    loaded = _refused_or_read(scalars.dump(spec), [])
    if loaded is not None:
        assert _refused_or_read(to_yaml(loaded), []) == loaded


@examples(25)
@given(st.text(max_size=60), st.lists(st.text(max_size=20), max_size=2))
def test_any_text_is_refused(text: str, overrides: list[str]) -> None:
    assert _refused_or_read(text, overrides) is None


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        ("{name: listops,", f'{{name: listops, "{URL}": 1,', "baseline.task"),
        ("short:\n", f"short:\n    question: '{URL}'\n", "profiles.short.question"),
        ("sampler: random", f"sampler: {{name: random, storage: '{URL}'}}", "search.sampler.storage"),
    ],
)
def test_password_is_refused_anywhere_in_a_spec(tmp_path, old, new, path) -> None:
    file = tmp_path / "tiny.yaml"
    assert old in TINY
    # Add a second fault, whose message would quote the value.
    file.write_text(TINY.replace(old, new).replace("seed: 0", "seed: zero"), encoding="utf-8")
    with expect_faults("secret", path) as caught:
        read_spec(file)
    assert "https://ann:***@host" in str(caught.value)
    assert MARKER not in str(caught.value)
    assert "zero" not in str(caught.value)


TOKEN = f"sk-{MARKER}0123456789abcdef"


@pytest.mark.parametrize(
    ("settings", "overrides", "code", "path"),
    [
        (f"api_key: {MARKER}", [], "secret", "baseline.train.api_key"),
        (f"api_key: {{value: [{MARKER}]}}", [], "secret", "baseline.train.api_key.value[0]"),
        (f"note: see {TOKEN}", [], "secret", "baseline.train.note"),
        ("x: 1", [f"baseline.train.api_key={MARKER}"], "secret", "baseline.train.api_key"),
        ("x: 1", [f"nowhere.note={TOKEN}"], "invalid-override", "nowhere.note"),
    ],
)
def test_secret_fields_and_tokens_are_refused_without_quoting(
    tmp_path, settings, overrides, code, path
) -> None:
    file = tmp_path / "tiny.yaml"
    assert "train: {" in TINY
    file.write_text(TINY.replace("train: {", f"train: {{{settings}, "), encoding="utf-8")
    with expect_faults(code, path) as caught:
        read_spec(file, overrides)
    assert MARKER not in str(caught.value)


@pytest.mark.parametrize("settings", ["tokenizer: bytes", "note: sk-learn-baseline", "password: 3"])
def test_harmless_fields_that_resemble_secrets_are_accepted(tmp_path, settings) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY.replace("train: {", f"train: {{{settings}, "), encoding="utf-8")
    assert read_spec(file).spec.name == "tiny"


def test_text_that_cannot_be_stored_is_refused(tmp_path) -> None:
    file = tmp_path / "tiny.yaml"
    file.write_text(TINY.replace("Does the gate matter?", r'"Does \ud800 matter?"'), encoding="utf-8")
    with expect_faults("invalid-value", "question"):
        read_spec(file)


@pytest.mark.parametrize("pattern", ["/etc/*", "plots/../../*", "a**b"])
def test_patterns_of_kept_files_must_be_inside_the_folder_of_the_trial(whole: Path, pattern: str) -> None:
    with expect_faults("invalid-value", "keep[0]"):
        load_spec(whole, [f"keep={dumps([pattern])}"])
