"""Habits that no linter checks, in every file; a failure names files and lines."""

import ast
import re
from pathlib import Path

import pytest

from tests.architecture.code_counts import count_code_lines
from tests.architecture.source import (
    calls,
    imported_names,
    nodes_of_kind,
    product_files,
    python_files,
    text,
    text_files,
)
from trainables import catalog
from trainables.training.metric_catalog import declared_metrics

LONGEST_FILE = 420
LONGEST_FUNCTION = 60
"""Greatest number of lines without docstrings; for files also without blank lines and comments."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
UNSAFE_FORMATS = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
RESTRICTED_READER = "trainables/readers/cifar.py"
"""The only file that reads pickles, because a data set was published in this format."""
FORBIDDEN_FUNCTIONS = ("eval", "exec", "breakpoint", "yaml.load", "os.system", "np.load", "numpy.load")
SHARED_RANDOMNESS = re.compile(
    r"random\.(?:seed|random|randint|choice|shuffle|sample|uniform)"
    r"|(?:np|numpy)\.random\.(?!default_rng|Generator|SeedSequence|Philox|PCG64)\w+"
)
WORDS_NOT_METRICS = {
    "orchestrator/cli/display/data_views.py": {"floor"},
    "orchestrator/cli/duration_estimate.py": {"lr"},
    "orchestrator/cli/script_spec.py": {"depth", "loss", "lr"},
    "orchestrator/conductor/attempts.py": {"saved"},
    "orchestrator/conductor/report_validator.py": {"loss"},
    "orchestrator/ledger/events.py": {"saved"},
    "orchestrator/plan/budget.py": {"flops"},
    "orchestrator/plan/ablation_check/effective_settings.py": {"loss"},
    "orchestrator/plan/ablation_check/differences.py": {"loss", "depth"},
    "orchestrator/plan/ablation_check/passes.py": {"loss", "depth"},
    "orchestrator/plan/ablation_check/probe.py": {"loss"},
    "orchestrator/plan/ablation_check/searched_fields.py": {"depth"},
    "orchestrator/plan/ablation_check/equal_arms.py": {"loss"},
    "orchestrator/plan/extension/extension_rules.py": {"flops"},
    "orchestrator/report/halting/halting_maps.py": {"depth"},
    "orchestrator/report/writers/csv_file.py": {"floor"},
    "orchestrator/report/writers/tables.py": {"floor"},
}
"""Names of metrics that also mean something else: a fact of a data set, a key of a spec or of an event,
evidence of a change, a row, a setting, the loss of every training, or a key of an example."""
FORBIDDEN_SUBJECTS = {
    "folders of a machine": re.compile(r"(?<![\w.>)\]}*])/(?:work|root|home|Users|mnt|opt|scratch)/\w"),
    "package registries": re.compile(r"index-url|https?://[^\s\"')]*(?:pypi|artifactory|nexus|mirror|proxy)"),
    "documents that are not here": re.compile(r"MODELS_AND_TASKS|ARCHITECTURE\.md|STYLE\.md|PEERS\.md"),
    "unfinished work": re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b"),
}


GLOBAL_SEEDING_FILE = "trainables/custom/generator_state.py"
NOTEBOOK_CODE = "haltsweep/code.py"
"""This file writes a user's function into a module of the user's folder."""


def test_product_unpickles_nothing():
    unsafe = {str(path) for path in product_files() if imported_names(path) & UNSAFE_FORMATS}
    assert unsafe == {RESTRICTED_READER, NOTEBOOK_CODE}


def test_reader_of_published_pickles_runs_nothing():
    """The reader overrides `find_class`; the default of `pickle.load` would import any function."""
    used = {ast.unparse(node) for _, node in nodes_of_kind(ast.Attribute, among=(Path(RESTRICTED_READER),))}
    assert {name for name in used if name.startswith("pickle.")} == {"pickle.Unpickler"}
    (reader,) = [
        node
        for _, node in nodes_of_kind(ast.ClassDef, among=(Path(RESTRICTED_READER),))
        if "pickle.Unpickler" in map(ast.unparse, node.bases)
    ]
    assert "find_class" in {statement.name for statement in reader.body if isinstance(statement, FUNCTIONS)}


def test_weights_are_loaded_with_weights_only():
    loads = [
        (place, keywords.get("weights_only")) for place, name, keywords in calls() if name == "torch.load"
    ]
    assert not [place for place, flag in loads if not (isinstance(flag, ast.Constant) and flag.value is True)]


@pytest.mark.parametrize("forbidden", FORBIDDEN_FUNCTIONS)
def test_forbidden_functions_are_never_called(forbidden):
    assert not [place for place, name, _ in calls() if name == forbidden]


def test_print_always_names_a_stream():
    """`print` without a stream would mix with output for scripts."""
    assert not [place for place, name, keywords in calls() if name == "print" and "file" not in keywords]


def test_randomness_comes_from_named_streams():
    """Only the file that seeds generators for custom code uses global generators."""
    using = [(place, name) for place, name, _ in calls() if SHARED_RANDOMNESS.fullmatch(name)]
    assert not [
        f"{place} {name}" for place, name in using if place.partition(":")[0] not in GLOBAL_SEEDING_FILE
    ]


def test_torch_generator_is_restored():
    """Fused kernels use it, so it is seeded only inside `fork_rng`."""
    names: dict[str, set[str]] = {}
    for place, name, _ in calls():
        names.setdefault(place.partition(":")[0], set()).add(name)
    seeding = [path for path, used in names.items() if "torch.manual_seed" in used]
    unforked = {path for path in seeding if "torch.random.fork_rng" not in names[path]}
    assert unforked <= {GLOBAL_SEEDING_FILE}


def test_exceptions_are_not_ignored_silently():
    broad = [
        (place, node.body)
        for place, node in nodes_of_kind(ast.ExceptHandler)
        if node.type is not None and ast.unparse(node.type) in {"Exception", "BaseException"}
    ]
    assert not [place for place, body in broad if all(isinstance(statement, ast.Pass) for statement in body)]


def test_files_are_small():
    lengths = {str(path): count_code_lines(text(path).encode()) for path in python_files()}
    assert not {path: length for path, length in lengths.items() if length > LONGEST_FILE}


def test_class_names_are_unique():
    """Models, tasks and heads have names that the catalogue uses, and public classes have common names."""
    looked_for = {"Config", "Encoder", "Decoder", "Model", "Sweep", "Trial"}
    places = {}
    for place, node in nodes_of_kind(ast.ClassDef):
        places.setdefault(node.name, []).append(place)
    assert not {
        name: statement for name, statement in places.items() if len(statement) > 1 and name not in looked_for
    }


def test_functions_are_small():
    lengths = {
        f"{place} {node.name}": _length(node)
        - sum(_length(statement) for statement in node.body[:1] if _is_text(statement))
        for place, node in nodes_of_kind(*FUNCTIONS, among=python_files())
    }
    assert not {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION}


def _length(node):
    return (node.end_lineno or 0) - node.lineno + 1


def _is_text(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


@pytest.mark.parametrize("subject", FORBIDDEN_SUBJECTS)
def test_repository_mentions_only_the_product(subject):
    shown = [
        f"{path}:{number}: {line.strip()}"
        for path in text_files()
        if path.name != "test_habits.py"
        for number, line in enumerate(text(path).splitlines(), start=1)
        if FORBIDDEN_SUBJECTS[subject].search(line)
    ]
    assert not shown


def test_orchestrator_has_no_names_of_metrics():
    """Facts about a metric are declared next to the code that computes it, and looked up."""
    names = {declared_metric.name for declared_metric in declared_metrics(catalog.names("tasks"))}
    files = tuple(path for path in product_files() if path.parts[0] == "orchestrator")
    said = [
        (place.rpartition(":")[0], place, node.value.rpartition("/")[2])
        for place, node in nodes_of_kind(ast.Constant, among=files)
        if isinstance(node.value, str)
    ]
    assert not [
        f"{place} {name}"
        for path, place, name in said
        if name in names and name not in WORDS_NOT_METRICS.get(path, ())
    ]


def test_every_model_has_a_naive_implementation():
    """The name of each model must occur in a test of `tests/oracles`."""
    named = {
        node.value
        for place, node in nodes_of_kind(ast.Constant, among=python_files())
        if place.startswith("tests/oracles/test_naive_") and isinstance(node.value, str)
    }
    assert not set(catalog.names("models")) - named, (
        "every model needs a naive implementation, see CONTRIBUTING.md"
    )
