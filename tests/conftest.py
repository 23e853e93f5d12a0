"""For all tests: what models are called with is checked where they are tested; what comes first."""

import gc
import os
import signal
from collections.abc import Generator, Iterable

import pytest

from tests.support.numerics import checked_shapes
from tests.support.numerics.dealing import dealt
from tests.support.processes import child_servers
from tests.support.specs.examples import register

# Tests work on tiny tensors, where threads only wait for each other; read when torch is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

checked_shapes.install()

child_servers.install()

register()

# Started in the background by a shell, they would have the commands that they start ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

collect_ignore_glob = ["*.yaml"]
"""Specs of tests, most of them wrong on purpose: with `--haltsweep` only those of other folders are tests."""

SHAPED = (
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
    "tests/trainables/recurrence/",
)
"""Tests of what models are made of: shapes and types of every call are checked.

That doubles what a call takes. The models that other tests plan and train are arms that the contracts run.
"""
ONCE = (
    "test_a_token_at_a_time_gives_the_states_of_the_whole",
    "test_answers_have_declared_shapes_and_bounds",
    "test_early_exit_changes_no_result_and_no_gradient",
    "test_outputs_have_declared_shapes_and_bounds",
)
"""Of the promises of a model those for which shapes are checked: on every arm they call what the others call.

Encoder and decoder, in training and not, causal and not, with and without early exit. It doubles their time.
"""

CONTRACTS = ("tests/contracts/", "tests/trainables/decoding/test_answers.py")
PROMISES = (
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
    "tests/trainables/test_kernels.py",
    "tests/trainables/testing/",
    "tests/trainables/training/test_accumulate.py",
    "tests/trainables/training/test_checkpoint_activations.py",
    "tests/trainables/training/test_rehearsal.py",
)
"""Where many models, tasks, settings or moments are held to one promise each, mostly in half a second."""
ONE_IN = 8
"""Of a promise `make test` tries the first case and an eighth of the others, of each promise other ones."""

GARBAGE_EVERY = 10_000
"""New objects after which cycles are looked for; by default it takes a twentieth of all processor time."""

ONE_OF_MANY = pytest.StashKey[bool]()
"""Set for these others: each takes a moment."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """For who changes what a page looks like."""
    parser.addoption(
        "--retake-pictures",
        action="store_true",
        help="tests of pages run studies of the box and put pictures of them into experiments/figures",
    )


@pytest.fixture(autouse=True, scope="session")
def _state_of_tests(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Commands record addresses that they are given in the state folder of the user."""
    os.environ["XDG_STATE_HOME"] = str(tmp_path_factory.getbasetemp() / "state")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, object, object]:
    """A mistake shall show within seconds where it can; of slow tests what takes longest begins first.

    Each of several processes begins with its share of these, and takes tests of a moment at the end.
    """
    for item in items:
        if config.getoption("--retake-pictures"):
            item.add_marker(pytest.mark.timeout(0))  # studies take minutes
    for number, cases in enumerate(_promises(items)):
        for place, case in enumerate(cases):
            if place and (place + number) % ONE_IN:
                case.stash[ONE_OF_MANY] = True
                case.add_marker(pytest.mark.slow)
    items.sort(key=_place)
    result = yield
    # Those that are not asked for are gone.
    if processes := getattr(config, "workerinput", {}).get("workercount"):
        modules: dict[str, list[pytest.Item]] = {}
        for item in items:
            if _is_slow(item) and ONE_OF_MANY not in item.stash:
                name = item.nodeid if _is_longest(item) else item.nodeid.partition("::")[0]
                modules.setdefault(name, []).append(item)
        dear = {item for group in modules.values() for item in group}
        items[:] = dealt([*modules.values()], [item for item in items if item not in dear], processes)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is made here stays until the end: to look through it over and over for garbage takes seconds.

    So does most of what is imported later, of which there is soon a gigabyte.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(GARBAGE_EVERY)
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Fixtures included, of a module too: who needs one first belongs to the module."""
    if gc.get_threshold()[0] != GARBAGE_EVERY:
        gc.set_threshold(GARBAGE_EVERY)  # a launch in this process sets the usual one, for good
    once = item.nodeid.startswith(CONTRACTS) and item.name.startswith(ONCE)
    checked_shapes.check(on=once or item.nodeid.startswith(SHAPED))
    return (yield)


def _promises(items: list[pytest.Item]) -> Iterable[list[pytest.Item]]:
    """Tests of many cases of a promise: those of one promise together."""
    found: dict[str, list[pytest.Item]] = {}
    for item in items:
        name, _, case = item.nodeid.partition("[")
        if case and name.startswith(PROMISES) and not _is_slow(item):
            found.setdefault(name, []).append(item)
    return found.values()


def _is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


def _place(item: pytest.Item) -> tuple[bool, bool, bool, float]:
    """What has the least comes first."""
    timeout = item.get_closest_marker("timeout")
    patience_s = float(timeout.args[0]) if timeout is not None and _is_slow(item) else 0.0
    return _is_slow(item), ONE_OF_MANY in item.stash, not _is_longest(item), -patience_s


def _is_longest(item: pytest.Item) -> bool:
    return item.get_closest_marker("longest") is not None
