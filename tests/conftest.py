"""Order and sample the collected tests, and check shapes of calls in the tests of models."""

import gc
import os
import signal
from collections.abc import Generator, Iterable

import pytest

from tests.support.numerics import checked_shapes
from tests.support.numerics.dealing import distribute_tests
from tests.support.processes import child_servers
from tests.support.specs.examples import register_profiles

# Tests work on tiny tensors, where threads only wait for each other; read when torch is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

checked_shapes.install()

child_servers.install()

register_profiles()

# A background shell ignores Ctrl-C, and commands started from here would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

collect_ignore_glob = ["*.yaml"]
"""Most specs of tests are wrong on purpose, so `--haltsweep` collects only specs of other folders."""

SHAPE_CHECKED_TESTS = (
    "tests/contracts/test_halting_properties.py",
    "tests/gpu/test_flash.py",
    "tests/gpu/test_models_on_cuda.py",
    "tests/oracles/test_naive_composition.py",
    "tests/oracles/test_naive_decoders.py",
    "tests/oracles/test_naive_looped.py",
    "tests/oracles/test_naive_routers.py",
    "tests/oracles/test_naive_sut.py",
    "tests/trainables/decoding/test_search.py",
    "tests/trainables/heads/",
    "tests/trainables/layers/",
    "tests/trainables/models/",
)
"""Tests of parts of models: shapes and types of every call are checked.

The checks double the time of a call, so other tests, which train the same models, run without them.
"""
SHAPE_CHECKED_CONTRACTS = (
    "test_decoder_states_are_the_same_token_by_token",
    "test_answers_have_declared_shapes_and_bounds",
    "test_early_exit_changes_no_result_and_no_gradient",
    "test_outputs_have_declared_shapes_and_bounds",
)
"""Contracts of models whose calls are checked for shapes.

Together they call encoder and decoder in training and in inference, causal and not, with and without early
exit. The other contracts call the same functions.
"""

CONTRACTS = ("tests/contracts/", "tests/trainables/decoding/test_answers.py")
SAMPLED_TESTS = (
    *CONTRACTS,
    "tests/faults/kills/test_deadly_trials.py",
    "tests/faults/other_code/test_failing_searches.py",
    "tests/faults/other_code/test_custom_tasks.py",
    "tests/oracles/",
    "tests/orchestrator/conductor/test_spending.py",
    "tests/orchestrator/execution/sweep/test_launch_undo.py",
    "tests/orchestrator/execution/sweep/test_replay.py",
    "tests/orchestrator/ledger/test_ledger_damage.py",
    "tests/orchestrator/ledger/test_ledger_faults.py",
    "tests/orchestrator/plan/arms/test_searched_values.py",
    "tests/orchestrator/plan/test_broken_flags.py",
    "tests/orchestrator/plan/ablation_check/test_empty_arms.py",
    "tests/orchestrator/plan/space_check/test_ready_made_spaces.py",
    "tests/orchestrator/plan/space_check/test_searched_fields.py",
    "tests/trainables/heads/",
    "tests/trainables/testing/",
    "tests/trainables/training/test_accumulate.py",
    "tests/trainables/training/test_checkpoint_activations.py",
    "tests/trainables/training/test_rehearsal.py",
)
"""Tests with many cases of half a second for one property; `make test` runs a sample of the cases."""
SAMPLE_EVERY = 8
"""`make test` runs the first case of a sampled test and every eighth other case."""

GARBAGE_THRESHOLD = 10_000
"""New objects between two garbage collections; Python's default costs 5% of all processor time."""

UNSAMPLED_CASE = pytest.StashKey[bool]()
"""Set on cases that `make test` leaves out; each runs for a moment."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that replaces the pictures of the documentation."""
    parser.addoption(
        "--retake-pictures",
        action="store_true",
        help="tests of pages run example sweeps and write pictures of them to experiments/figures",
    )


@pytest.fixture(autouse=True, scope="session")
def _use_temporary_state_folder(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Commands record addresses in the state folder of the user, so tests use a temporary one."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.getbasetemp() / "state")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, object, object]:
    """Sort quick tests first, so that a mistake shows within seconds, and slow tests by descending timeout.

    Each of several processes begins with its share of the slow tests and ends with quick cases.
    """
    for item in items:
        if config.getoption("--retake-pictures"):
            item.add_marker(pytest.mark.timeout(0))  # studies take minutes
    for test_number, cases in enumerate(_sampled_tests(items)):
        for case_number, case in enumerate(cases):
            if case_number and (case_number + test_number) % SAMPLE_EVERY:
                case.stash[UNSAMPLED_CASE] = True
                case.add_marker(pytest.mark.slow)
    items.sort(key=_sort_key)
    result = yield
    # pytest has removed the deselected tests by now.
    if processes := getattr(config, "workerinput", {}).get("workercount"):
        modules: dict[str, list[pytest.Item]] = {}
        for item in items:
            if _is_slow(item) and UNSAMPLED_CASE not in item.stash:
                name = item.nodeid if _is_longest(item) else item.nodeid.partition("::")[0]
                modules.setdefault(name, []).append(item)
        long_tests = {item for group in modules.values() for item in group}
        items[:] = distribute_tests(
            [*modules.values()], [item for item in items if item not in long_tests], processes
        )
    return result


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Pause garbage collection while modules are imported: their objects live until the end.

    Modules hold up to a gigabyte, and each scan of them takes seconds.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(GARBAGE_THRESHOLD)
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Check shapes in the selected tests and in their fixtures, also in fixtures of a module."""
    if gc.get_threshold()[0] != GARBAGE_THRESHOLD:
        gc.set_threshold(GARBAGE_THRESHOLD)  # a launch in this process resets the threshold
    is_checked_contract = item.nodeid.startswith(CONTRACTS) and item.name.startswith(SHAPE_CHECKED_CONTRACTS)
    checked_shapes.check(on=is_checked_contract or item.nodeid.startswith(SHAPE_CHECKED_TESTS))
    return (yield)


def _sampled_tests(items: list[pytest.Item]) -> Iterable[list[pytest.Item]]:
    """Return the quick cases of sampled tests, grouped by test."""
    cases_by_test: dict[str, list[pytest.Item]] = {}
    for item in items:
        name, _, case = item.nodeid.partition("[")
        if case and name.startswith(SAMPLED_TESTS) and not _is_slow(item):
            cases_by_test.setdefault(name, []).append(item)
    return cases_by_test.values()


def _is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


def _sort_key(item: pytest.Item) -> tuple[bool, bool, bool, float]:
    """Return the key that sorts quick tests first, then slow tests by descending timeout."""
    timeout = item.get_closest_marker("timeout")
    timeout_s = float(timeout.args[0]) if timeout is not None and _is_slow(item) else 0.0
    return _is_slow(item), UNSAMPLED_CASE in item.stash, not _is_longest(item), -timeout_s


def _is_longest(item: pytest.Item) -> bool:
    return item.get_closest_marker("longest") is not None
