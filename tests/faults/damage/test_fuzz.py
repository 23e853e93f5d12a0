"""Commands end with an answer or one clear error, whatever specs and sweep folders contain. A few
examples of each test run by default; `make search` runs many new examples."""

import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from orchestrator.errors import PlanError
from orchestrator.execution.trial.rehearsal import rehearse
from orchestrator.plan.planner import plan_file
from tests.support.processes.commands import TINY, Shell
from tests.support.specs.examples import examples

EXAMPLES = 15
DAMAGED = 4
"""Number of damaged sweeps. Each takes seconds, because a command reads the whole sweep and its MLflow
database."""
PATIENCE_S = 120.0
"""Limit in seconds of CPU time: a normal command takes about one second, a hanging command takes more."""


pytestmark = pytest.mark.slow
POSTHOC = {"model.halt.threshold": [0.3]}
SPEC = {**yaml.safe_load(TINY), "posthoc": POSTHOC, "grid": {"train.lr": [0.01, 0.02]}}
SPEC["arms"]["no-halt"] = {"why": "all layers", "set": {"model.halt": None}, "drop": ["train.ponder_weight"]}
SPEC["search"] |= {"spaces": ["halting"], "stopper": {"name": "asha", "grace_steps": 2}}
SPEC["published"] = [{"arm": "baseline", "metric": "accuracy", "values": {"near-iid": 0.5}, "source": "here"}]
HOSTILE: tuple[Any, ...] = (
    *(None, True, "", " ", "~", "\x1b[31mred", "[bold]", "../..", "a" * 300, "ä\u202e"),
    *(0, -1, 3, 10**6, 2**63 - 1, -(2**63), -0.5, 1e-300, 1e300, float("nan"), float("inf")),
    *([], {}, [None], {"": None}, {"int": [1, 4]}, {"float": [0.1, 0.2]}, {"choice": []}, [1, 1]),
    *("tpe", "grid", "asha", "universal", "listops", "valid/accuracy", "model.gate", "train.steps"),
)


def list_paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """List the path of every item inside `value`, as keys and positions."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, item in items for path in ((*at, key), *list_paths(item, (*at, key)))]


def item_at(value: Any, at: tuple[Any, ...]) -> Any:
    """Return the item at a path inside `value`."""
    for key in at:
        value = value[key]
    return value


def mutate(spec: Any, chance: random.Random) -> None:
    """Make one change that a tired person, a broken script or an attacker might make."""
    spec_path = chance.choice(list_paths(spec))
    parent, key = item_at(spec, spec_path[:-1]), spec_path[-1]
    other_item = item_at(spec, chance.choice(list_paths(spec)))
    match chance.randrange(6):
        case 0:
            del parent[key]
        case 1:
            parent[key] = yaml.safe_load(yaml.safe_dump(other_item))
        case 2 if isinstance(parent, dict):
            parent[str(key)[::-1] or "x"] = parent.pop(key)
        case 3:
            parent[key] = [parent[key]]
        case _:
            parent[key] = chance.choice(HOSTILE)


@st.composite
def specs(draw: st.DrawFn) -> bytes:
    """Generate a spec with one to three faults, sometimes with some changed bytes."""
    chance = random.Random(draw(st.integers(0, 2**63)))
    spec = yaml.safe_load(yaml.safe_dump(SPEC))
    for _ in range(draw(st.integers(1, 3))):
        mutate(spec, chance)
    text = bytearray(
        yaml.safe_dump(spec, allow_unicode=True, sort_keys=False).encode("utf-8", "surrogatepass")
    )
    for _ in range(chance.choice((0, 0, 0, 1, 3))):
        text[chance.randrange(len(text))] = chance.randrange(256)
    return bytes(text)


def assert_ends_cleanly(answer, started_at, *codes):
    """Assert that a command ended in time with one of `codes` and without a traceback."""
    assert answer.code in codes, answer
    assert "Traceback" not in answer.out + answer.err
    assert time.process_time() - started_at < PATIENCE_S
    if answer.code == 2:
        assert answer.err.strip(), answer


def rehearsal_errors(file: Path) -> list[str]:
    """List the errors of the first training step of each arm, except for losses that are not finite."""
    try:
        rehearse(*plan_file(file))
    except PlanError as error:
        return [line for line in str(error).splitlines() if "must succeed, got diverged" not in line]
    return []


@examples(EXAMPLES, suppress_health_check=list(HealthCheck))
@given(text=specs())
def test_any_spec_is_refused_or_trains(haltsweep, text):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "fuzzed.yaml"
        file.write_bytes(text)
        started_at = time.process_time()
        answer = haltsweep("plan", str(file))
        assert_ends_cleanly(answer, started_at, 0, 2)
        if answer.code == 0:
            assert not rehearsal_errors(file)


@pytest.fixture(scope="module")
def finished_folder(tmp_path_factory) -> Path:
    """Return a folder with a finished sweep, its data and its MLflow database."""
    shell = Shell.at(tmp_path_factory.mktemp("finished"), tracked=True)
    answer = shell.run("launch", "tiny.yaml", "--driver", "inline", "search.stopper=null")
    assert answer.code == 0, answer
    return shell.folder


def damage(root: Path, chance: random.Random) -> str:
    """Change one file below `root` as a broken disk, a careless person or an attacker might."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    file, other_file = chance.choice(files), chance.choice(files)
    content = bytearray(file.read_bytes())
    kind = chance.randrange(8)
    if kind <= 2 and content:
        for _ in range(chance.choice((1, 1, 8))):
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        file.write_bytes(content)
    elif kind == 3:
        file.write_bytes(content[: chance.randrange(len(content) + 1)])
    elif kind == 4:
        file.write_bytes(other_file.read_bytes())
    elif kind == 5:
        file.unlink()
    elif kind == 6:
        file.unlink()
        file.symlink_to(file.name)
    else:
        file.unlink()
        file.mkdir()
    return f"{kind}: {file.relative_to(root)}"


@examples(DAMAGED, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**63))
def test_damaged_sweeps_end_in_an_answer_or_an_error(haltsweep, finished_folder, seed):
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "copy"
        shutil.copytree(finished_folder, root)
        damage_done = damage(root / chance.choice(("runs", "runs/tiny", "data")), chance)
        runs = "--runs", str(root / "runs")
        command = chance.choice((("status", "tiny"), ("report", "tiny", "--json"), ("sync", "tiny")))
        started_at = time.process_time()
        answer = haltsweep(*command, *runs)
        assert_ends_cleanly(answer, started_at, 0, 1, 2)
        assert answer.code == 0 or answer.err.strip(), (damage_done, command)
