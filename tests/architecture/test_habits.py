"""Habits that no linter knows, over every file; each failure names files and lines."""

import ast
import re
from pathlib import Path

import pytest

from tests.architecture.code_counts import code_lines
from tests.architecture.source import calls, found, imported, packaged, parsed, text, tracked, with_tests
from trainables import catalog
from trainables.training.measured import declared_metrics

LONGEST_FILE = 420
LONGEST_FUNCTION = 60
"""Lines without docstrings; those of a file also without blank lines and comments."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
UNSAFE_FORMATS = {"pickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
RESTRICTED_READER = "trainables/readers/cifar.py"
"""The one file that reads pickles, since a data set was published as such."""
NEVER_CALLED = ("eval", "exec", "breakpoint", "yaml.load", "os.system", "np.load", "numpy.load")
SHARED_RANDOMNESS = re.compile(
    r"random\.(?:seed|random|randint|choice|shuffle|sample|uniform)"
    r"|(?:np|numpy)\.random\.(?!default_rng|Generator|SeedSequence|Philox|PCG64)\w+"
)
WORDS_NOT_METRICS = {
    "orchestrator/cli/display/data_views.py": {"floor"},
    "orchestrator/cli/duration_estimate.py": {"lr"},
    "orchestrator/cli/script_spec.py": {"depth", "loss", "lr"},
    "orchestrator/conductor/attempts.py": {"saved"},
    "orchestrator/conductor/report_judge.py": {"loss"},
    "orchestrator/ledger/events.py": {"saved"},
    "orchestrator/plan/budget.py": {"flops"},
    "orchestrator/plan/ablation_check/acting_settings.py": {"loss"},
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
"""Names of metrics that stand for something else: a fact of a data set, a key of a spec, evidence
of a change, a row, a setting, a key of an event, the loss of every training, a key of what an example
shows."""
NOT_SAID = {
    "folders of a machine": re.compile(r"(?<![\w.>)\]}*])/(?:work|root|home|Users|mnt|opt|scratch)/\w"),
    "package registries": re.compile(r"index-url|https?://[^\s\"')]*(?:pypi|artifactory|nexus|mirror|proxy)"),
    "documents that are not here": re.compile(r"MODELS_AND_TASKS|ARCHITECTURE\.md|STYLE\.md|PEERS\.md"),
    "unfinished work": re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b"),
}


SEEDS_FOR_OTHERS = "trainables/custom/generator_state.py"
NOTEBOOK_CODE = "haltsweep/code.py"
"""It writes a user's own function into a module of the user's folder, which is code like any other there."""


def test_every_module_says_what_it_is_for():
    written = [path for path in packaged() if text(path).strip()]
    assert not [str(path) for path in written if not ast.get_docstring(parsed(path))]


def test_nothing_is_unpickled():
    unsafe = {str(path) for path in packaged() if imported(path) & UNSAFE_FORMATS}
    assert unsafe == {RESTRICTED_READER, NOTEBOOK_CODE}


def test_published_pickles_are_read_by_a_reader_that_runs_nothing():
    """It overrides what finds a pickle's functions; `pickle.load` would use the default, which finds all."""
    used = {ast.unparse(node) for _, node in found(ast.Attribute, among=(Path(RESTRICTED_READER),))}
    assert {name for name in used if name.startswith("pickle.")} == {"pickle.Unpickler"}
    (reader,) = [
        node
        for _, node in found(ast.ClassDef, among=(Path(RESTRICTED_READER),))
        if "pickle.Unpickler" in map(ast.unparse, node.bases)
    ]
    assert "find_class" in {each.name for each in reader.body if isinstance(each, FUNCTIONS)}


def test_weights_are_read_as_weights_only():
    loads = [(place, given.get("weights_only")) for place, name, given in calls() if name == "torch.load"]
    assert not [place for place, flag in loads if not (isinstance(flag, ast.Constant) and flag.value is True)]


@pytest.mark.parametrize("forbidden", NEVER_CALLED)
def test_what_is_never_called(forbidden):
    assert not [place for place, name, _ in calls() if name == forbidden]


def test_people_are_spoken_to_in_one_place():
    """`print` without a stream would end up among answers for scripts."""
    assert not [place for place, name, given in calls() if name == "print" and "file" not in given]


def test_randomness_comes_from_named_streams():
    """Nobody seeds or draws from a generator that everybody shares, but who seeds them for code of others."""
    using = [(place, name) for place, name, _ in calls() if SHARED_RANDOMNESS.fullmatch(name)]
    assert not [f"{place} {name}" for place, name in using if place.partition(":")[0] not in SEEDS_FOR_OTHERS]


def test_torch_s_generator_is_put_back():
    """Fused kernels read it: it is seeded on a fork or not at all."""
    names: dict[str, set[str]] = {}
    for place, name, _ in calls():
        names.setdefault(place.partition(":")[0], set()).add(name)
    seeding = [path for path, used in names.items() if "torch.manual_seed" in used]
    unforked = {path for path in seeding if "torch.random.fork_rng" not in names[path]}
    assert unforked <= {SEEDS_FOR_OTHERS}


def test_nothing_is_caught_blindly():
    assert not [place for place, node in found(ast.ExceptHandler) if node.type is None]


def test_nothing_is_swallowed_in_silence():
    broad = [
        (place, node.body)
        for place, node in found(ast.ExceptHandler)
        if node.type is not None and ast.unparse(node.type) in {"Exception", "BaseException"}
    ]
    assert not [place for place, body in broad if all(isinstance(each, ast.Pass) for each in body)]


def test_files_stay_small():
    lengths = {str(path): code_lines(text(path).encode()) for path in with_tests()}
    assert not {path: length for path, length in lengths.items() if length > LONGEST_FILE}


def test_a_class_has_a_name_of_its_own():
    """Models, tasks and heads have names that the catalogue looks for; what users import has plain ones."""
    looked_for = {"Config", "Encoder", "Decoder", "Model", "Sweep", "Trial"}
    places = {}
    for place, node in found(ast.ClassDef):
        places.setdefault(node.name, []).append(place)
    assert not {name: each for name, each in places.items() if len(each) > 1 and name not in looked_for}


def test_functions_stay_small():
    lengths = {
        f"{place} {node.name}": _length(node) - sum(_length(each) for each in node.body[:1] if _is_text(each))
        for place, node in found(*FUNCTIONS, among=with_tests())
    }
    assert not {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION}


def _length(node):
    return (node.end_lineno or 0) - node.lineno + 1


def _is_text(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


@pytest.mark.parametrize("subject", NOT_SAID)
def test_the_repository_speaks_of_the_product_alone(subject):
    shown = [
        f"{path}:{number}: {line.strip()}"
        for path in tracked()
        if path.name != "test_habits.py"
        for number, line in enumerate(text(path).splitlines(), start=1)
        if NOT_SAID[subject].search(line)
    ]
    assert not shown


def test_the_orchestrator_knows_no_metric_by_name():
    """What is known of a quantity is declared beside what computes it, and looked up."""
    names = {each.name for each in declared_metrics(catalog.names("tasks"))}
    files = tuple(path for path in packaged() if path.parts[0] == "orchestrator")
    said = [
        (place.rpartition(":")[0], place, node.value.rpartition("/")[2])
        for place, node in found(ast.Constant, among=files)
        if isinstance(node.value, str)
    ]
    assert not [
        f"{place} {name}"
        for path, place, name in said
        if name in names and name not in WORDS_NOT_METRICS.get(path, ())
    ]


def test_every_model_is_compared_with_a_naive_twin():
    """A new one has none that pytest would miss: its name stands in a test of `tests/oracles`."""
    named = {
        node.value
        for place, node in found(ast.Constant, among=with_tests())
        if place.startswith("tests/oracles/test_naive_") and isinstance(node.value, str)
    }
    assert not set(catalog.names("models")) - named, "write its equations once more, see CONTRIBUTING.md"
