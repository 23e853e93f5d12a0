"""Whatever specs, overrides and sweep folders hold, a command ends in an answer or in one clear error.

A few examples of each run with the tests, many that no run before has tried with `make search`.
"""

import random
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given
from hypothesis import strategies as st

from orchestrator.errors import PlanError
from orchestrator.execution.trial.rehearsal import rehearse
from orchestrator.plan.planner import plan_file
from tests.support.processes.commands import TINY
from tests.support.specs.examples import examples

EXAMPLES = 25
DAMAGED = 6
"""A damaged sweep is given to a command that reads all of it, MLflow's database too: seconds each."""
PATIENCE_S = 120.0
"""Seconds of CPU: what hangs takes more, and what works takes one."""


pytestmark = pytest.mark.slow
POSTHOC = {"model.halt.threshold": [0.3]}
SPEC = {**yaml.safe_load(TINY), "posthoc": POSTHOC, "grid": {"train.lr": [0.01, 0.02]}}
SPEC["arms"]["no-halt"] = {"why": "all layers", "set": {"model.halt": None}, "drop": ["train.ponder_weight"]}
SPEC["search"] |= {"spaces": ["halting"], "stopper": {"name": "asha", "grace_steps": 2}}
SPEC["published"] = [{"arm": "baseline", "metric": "accuracy", "values": {"near-iid": 0.5}, "source": "here"}]
HOSTILE: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        "",
        " ",
        "none",
        "null",
        "~",
        "\x1b[31mred",
        "<b>",
        "[bold]",
        "../..",
        "a" * 300,
        "ä\u202e",
    ),
    *(0, 1, -1, 2, 3, 7, 10**6, 2**31, 2**63 - 1, -(2**63), 0.0, -0.5, 0.5, 1.0, 1e-300, 1e300, float("nan")),
    *(
        float("inf"),
        [],
        {},
        [[]],
        [None],
        {"": None},
        {"int": [1, 4]},
        {"float": [0.1, 0.2]},
        {"choice": []},
        [1, 1],
    ),
    *(
        "tpe",
        "grid",
        "asha",
        "hyperband",
        "universal",
        "listops",
        "valid/accuracy",
        "model.gate",
        "train.steps",
    ),
)


def places(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place inside `value`, by keys and positions."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, each in inside for found in ((*at, key), *places(each, (*at, key)))]


def inside(value: Any, at: tuple[Any, ...]) -> Any:
    """What is at `at`."""
    for key in at:
        value = value[key]
    return value


def mutate(spec: Any, chance: random.Random) -> None:
    """One change that a tired person, a broken script or an attacker might make."""
    at = chance.choice(places(spec))
    parent, key = inside(spec, at[:-1]), at[-1]
    other = inside(spec, chance.choice(places(spec)))
    match chance.randrange(6):
        case 0:
            del parent[key]
        case 1:
            parent[key] = yaml.safe_load(yaml.safe_dump(other))
        case 2 if isinstance(parent, dict):
            parent[str(key)[::-1] or "x"] = parent.pop(key)
        case 3:
            parent[key] = [parent[key]]
        case _:
            parent[key] = chance.choice(HOSTILE)


@st.composite
def specs(draw: st.DrawFn) -> bytes:
    """A spec with one to three faults, sometimes with some bytes of its text changed."""
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


@st.composite
def overrides(draw: st.DrawFn) -> str:
    """A change asked for on the command line, of a place that is there or nearly there."""
    chance = random.Random(draw(st.integers(0, 2**63)))
    at = chance.choice(places(SPEC))
    key = "".join(f"[{each}]" if isinstance(each, int) else f".{each}" for each in at).removeprefix(".")
    if chance.random() < 0.3:
        place = chance.randrange(len(key))
        key = key[:place] + chance.choice(("", ".", "[0]", "=", "x", "é", " ")) + key[place + 1 :]
    value = yaml.safe_dump(chance.choice(HOSTILE), default_flow_style=True)
    return f"{key}=" + value.removesuffix("...\n")


def assert_ends_well(shown, began, *codes):
    """One of these exit codes; an error is told in words, in a while."""
    assert shown.code in codes, shown

    assert "Traceback" not in shown.out + shown.err
    assert time.process_time() - began < PATIENCE_S
    if shown.code == 2:
        assert shown.err.strip(), shown


def crashes(file: Path) -> list[str]:
    """How the first training step of each arm fails; a loss that is not finite is no fault of the plan."""
    try:
        rehearse(*plan_file(file))
    except PlanError as error:
        return [line for line in str(error).splitlines() if "must end well, got diverged" not in line]
    return []


@examples(EXAMPLES, suppress_health_check=list(HealthCheck))
@given(text=specs())
def test_any_spec_is_refused_or_can_be_trained(haltsweep, text):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "fuzzed.yaml"
        file.write_bytes(text)
        began = time.process_time()
        shown = haltsweep("plan", str(file))
        assert_ends_well(shown, began, 0, 2)
        if shown.code == 0:
            assert not crashes(file)


@examples(EXAMPLES, suppress_health_check=list(HealthCheck))
@given(changes=st.lists(overrides(), min_size=1, max_size=3))
@example(changes=[f"baseline.task.name={'a' * 300}"])
def test_any_override_is_refused_or_planned(haltsweep, changes):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "fuzzed.yaml"
        file.write_text(yaml.safe_dump(SPEC))
        began = time.process_time()
        assert_ends_well(haltsweep("plan", str(file), *changes), began, 0, 2)


@pytest.fixture(scope="module")
def finished(tmp_path_factory, request) -> Path:
    """A folder with a finished sweep in it, its data and its MLflow."""
    from tests.support.processes.commands import Shell

    shell = Shell.at(tmp_path_factory.mktemp("finished"), tracked=True)
    shown = shell.run("launch", "tiny.yaml", "--driver", "inline", "search.stopper=null")
    assert shown.code == 0, shown
    return shell.folder


def damage(root: Path, chance: random.Random) -> str:
    """Change one file below `root` as a broken disk, a careless person or an attacker might."""
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    file, other = chance.choice(files), chance.choice(files)
    content = bytearray(file.read_bytes())
    kind = chance.randrange(8)
    if kind <= 2 and content:
        for _ in range(chance.choice((1, 1, 8))):
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        file.write_bytes(content)
    elif kind == 3:
        file.write_bytes(content[: chance.randrange(len(content) + 1)])
    elif kind == 4:
        file.write_bytes(other.read_bytes())
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
def test_any_damage_of_a_sweep_is_told(haltsweep, finished, seed):
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "copy"
        shutil.copytree(finished, root)
        shown = damage(root / chance.choice(("runs", "runs/tiny", "data")), chance)
        runs = "--runs", str(root / "runs")
        command = chance.choice((("status", "tiny"), ("report", "tiny", "--json"), ("sync", "tiny")))
        began = time.process_time()
        answer = haltsweep(*command, *runs)
        assert_ends_well(answer, began, 0, 1, 2)
        assert answer.code == 0 or answer.err.strip(), (shown, command)
