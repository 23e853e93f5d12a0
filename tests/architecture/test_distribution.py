"""A wheel contains the packages, the command and the pytest plugin, and no file of development."""

import configparser
import importlib
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from matplotlib import get_cachedir

from tests.architecture.source import PACKAGES, ROOT, product_files
from tests.support.processes.commands import PATIENCE_S

CLUSTERS = Path("orchestrator/clusters")
STARTERS = Path("orchestrator/starters")
PAGE = Path("orchestrator/report/writers")
BUILD = "import setuptools.build_meta as backend, sys; backend.build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel built from a copy of the sources, with the installed tools and without downloads."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    unwanted = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "dist")
    for name in (*PACKAGES, "tests", "experiments"):
        shutil.copytree(ROOT / name, source / name, ignore=unwanted)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    completed = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BUILD, target],
        cwd=source,
        env={**os.environ, "SETUPTOOLS_USE_DISTUTILS": "local"},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    (file,) = target.glob("*.whl")
    with zipfile.ZipFile(file) as wheel:
        yield wheel


def test_wheel_has_every_module_and_nothing_else(wheel):
    names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert {str(path) for path in product_files()} <= names
    assert {name.partition("/")[0] for name in names} == {*PACKAGES, "experiments"}
    specs = {f"experiments/{path.name}" for path in (ROOT / "experiments").glob("*.yaml")}
    assert {name for name in names if name.startswith("experiments/")} == specs
    assert {f"{package}/py.typed" for package in PACKAGES} <= names


def test_packages_have_only_modules_and_declared_files(wheel):
    """An installed haltsweep lacks every undeclared file that is no module."""
    other_files = [
        path.relative_to(ROOT)
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts
    ]
    assert {path.parent for path in other_files if path.name != "py.typed"} == {CLUSTERS, STARTERS, PAGE}
    assert {str(path) for path in other_files} <= set(wheel.namelist())


@pytest.mark.slow
def test_wheel_alone_runs_a_sweep_from_new_to_report(wheel, tmp_path):
    """The test runs outside of the tree, with only third-party packages of this environment."""
    site, folder = tmp_path / "site", tmp_path / "folder"
    wheel.extractall(site)
    folder.mkdir()
    run = "from orchestrator.cli import main; import sys; assert main.__file__.startswith(sys.argv[1])"
    run += "; main.run(sys.argv[2:])"
    environment = {**os.environ, "PYTHONPATH": str(site), "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    environment["MPLCONFIGDIR"] = get_cachedir()  # finding fonts for a new home folder takes seconds

    def haltsweep(*arguments):
        command = [sys.executable, "-P", "-c", run, site, *arguments]
        completed_process = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert completed_process.returncode == 0, completed_process.stderr
        return completed_process.stdout

    haltsweep("new", "own")
    quick = ("baseline.epochs=2", "search.trials_per_arm=1", "search.repeats=1")
    haltsweep("launch", "digits.yaml", *quick, "--driver", "inline", "--tracking", "none")
    assert "minus-dropout" in haltsweep("report", "digits")
    haltsweep("new", "quickstart")
    assert (folder / "quickstart.yaml").exists(), "the wheel must have the experiments"


def test_wheel_declares_the_command_and_the_plugin(wheel):
    (name,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    declared = configparser.ConfigParser()
    declared.read_string(wheel.read(name).decode())
    assert dict(declared["console_scripts"]) == {"haltsweep": "orchestrator.cli.entry:run"}
    assert dict(declared["pytest11"]) == {"haltsweep": "orchestrator.pytest_plugin"}
    for target in (declared["console_scripts"]["haltsweep"], declared["pytest11"]["haltsweep"]):
        module, _, attribute = target.partition(":")
        assert not attribute or callable(getattr(importlib.import_module(module), attribute))


def test_wheel_declares_licence_and_extras(wheel):
    assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
    lines = wheel.read(name).decode().splitlines()
    assert "Name: haltsweep" in lines
    assert "License-Expression: Apache-2.0" in lines
    assert {"flash", "integrations", "postgres", "docs", "dev"} == {
        line.partition(": ")[2] for line in lines if line.startswith("Provides-Extra")
    }


def test_constraints_pin_every_dependency():
    """`make demo` installs the tested versions."""
    metadata = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in lines if "==" in line}
    requirements = [
        *metadata["dependencies"],
        *(
            requirement
            for extra in ("dev", "docs")
            for requirement in metadata["optional-dependencies"][extra]
        ),
    ]
    names = {line.partition(">")[0].partition("[")[0].lower().replace("_", "-") for line in requirements}
    assert names <= pinned
