"""Rules of imports: between packages, of libraries, and modules in memory after a command."""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.architecture.source import (
    PACKAGES,
    ROOT,
    imported_names,
    module_name,
    nodes_of_kind,
    product_files,
)
from tests.support.processes.commands import PATIENCE_S, TINY

IMPORTERS = {
    "ray": ["orchestrator/execution/ray/*.py"],
    "mlflow": ["orchestrator/tracking/*.py"],
    "optuna": [
        "orchestrator/search/samplers.py",
        "orchestrator/search/suggestions.py",
        "orchestrator/search/sampler_check.py",
        "orchestrator/search/importance.py",
        "orchestrator/conductor/arm_search.py",
    ],
    "sqlalchemy": ["orchestrator/ledger/*.py"],
    "typer": ["orchestrator/cli/*.py"],
    "jinja2": ["orchestrator/report/writers/page.py"],
    "matplotlib": ["orchestrator/report/*.py", "orchestrator/cli/display/data_figure.py"],
    "pytest": ["orchestrator/pytest_*.py", "trainables/testing/*.py"],
}
IMPORT_NAMES = {"pillow": "PIL", "pyyaml": "yaml", "scikit_learn": "sklearn"}
PARTS_OF_PYDANTIC = ("annotated_types", "pydantic_core")
HEAVY = {"torch", "ray", "mlflow", "optuna"}
ALL_HEAVY = HEAVY | {"sqlalchemy", "pyarrow", "numpy", "scipy", "pandas", "matplotlib"}


def test_import_contracts():
    result = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache", "--no-logo"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert result.returncode == 0, result.stdout


def project():
    """Return the content of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("package", ["orchestrator", "trainables"])
def test_every_part_of_a_package_is_in_a_layer(package):
    linter = project()["tool"]["importlinter"]
    assert set(linter["root_packages"]) == set(PACKAGES)
    (layers,) = [
        contract["layers"]
        for contract in linter["contracts"]
        if contract["type"] == "layers" and package in contract["layers"][-1]
    ]
    modules = {name.strip() for layer in layers for name in layer.split("|")}
    layer_parts = {".".join(name.split(".")[:2]) for name in modules}
    part_names = {path.parts[1].removesuffix(".py") for path in product_files() if path.parts[0] == package}
    parts = {f"{package}.{part}" for part in part_names - {"__init__"}}
    optional = {name.strip("()") for name in layer_parts if name.startswith("(")}
    assert parts - optional == {name for name in layer_parts if not name.startswith("(")}


@pytest.mark.parametrize("library", IMPORTERS)
def test_library_is_imported_only_in_its_files(library):
    users = [str(path) for path in product_files() if library in imported_names(path)]
    users_elsewhere = [
        user for user in users if not any(fnmatch(user, allowed) for allowed in IMPORTERS[library])
    ]
    assert not users_elsewhere
    assert users, f"the dependency {library} must be imported"


def test_every_imported_library_is_a_dependency():
    """A package that is installed only by another dependency may disappear with it."""
    metadata = project()["project"]
    extras = [
        requirement
        for name in ("flash", "integrations")
        for requirement in metadata["optional-dependencies"][name]
    ]
    plugin = ["pytest"]  # every test run has pytest
    names = {
        re.split(r"[\[>=;<~ ]", line)[0].replace("-", "_").lower()
        for line in metadata["dependencies"] + extras
    }
    known_packages = {IMPORT_NAMES.get(name, name) for name in names} | {
        *plugin,
        *PARTS_OF_PYDANTIC,
        *PACKAGES,
    }
    used_packages = {name for path in product_files() for name in imported_names(path)}
    assert not used_packages - known_packages - sys.stdlib_module_names


def test_no_star_and_no_relative_imports():
    imports = nodes_of_kind(ast.ImportFrom)
    assert not [
        place for place, node in imports if node.level or any(alias.name == "*" for alias in node.names)
    ]


def modules_after(code, cwd):
    """Return the modules in memory after a new process has run `code`."""
    script = f"import sys\n{code}\nimport json\nsys.stderr.write('\\n' + json.dumps(sorted(sys.modules)))"
    command_line = [sys.executable, "-c", script]
    result = subprocess.run(
        command_line, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert result.returncode == 0, result.stderr
    return set(json.loads(result.stderr.splitlines()[-1]))


def command(*arguments):
    """Return code that runs a command to a successful end."""
    return (
        "from orchestrator.cli.main import run\n"
        f"try: run({list(arguments)})\n"
        "except SystemExit as end: assert not end.code, end.code"
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working folder with a spec."""
    working_folder = tmp_path_factory.mktemp("imports")
    (working_folder / "tiny.yaml").write_text(TINY)
    return working_folder


@pytest.mark.parametrize(
    "code",
    [
        "import orchestrator, search_spaces, trainables",
        "import orchestrator.cli.main",
        "import orchestrator.pytest_plugin",
        command("--help"),
        command("launch", "--help"),
    ],
    ids=["packages", "command", "plugin", "help", "help of launch"],
)
def test_help_imports_nothing_heavy(folder, code):
    assert not modules_after(code, folder) & ALL_HEAVY


@pytest.mark.slow
def test_plan_imports_only_torch_and_optuna(folder):
    loaded_modules = modules_after(
        command("check", "tiny.yaml") + "\n" + command("plan", "tiny.yaml"), folder
    )
    assert loaded_modules & HEAVY == {"torch", "optuna"}
    assert "sqlalchemy" not in loaded_modules
    assert "torch._dynamo" not in loaded_modules, (
        "a plan must not take steps, which import PyTorch's compiler for two seconds"
    )


def test_invalid_file_is_refused_before_heavy_imports(folder):
    (folder / "no.yaml").write_text("- a list\n")
    code = command("check", "no.yaml", "/dev/null").replace("assert not end.code", "assert end.code == 2")
    assert not modules_after(code, folder) & ALL_HEAVY


def test_reading_a_sweep_imports_no_framework(folder):
    """Launching without Ray, and reading a sweep, import only necessary libraries."""
    code = "import orchestrator.execution.sweep.launch, orchestrator.execution.inline"
    code += ", orchestrator.cli.stored_sweep"
    code += ", orchestrator.report.results.summary, orchestrator.report.writers.tables"
    code += ", orchestrator.execution.sweep.recorder"
    assert not modules_after(code, folder) & HEAVY


@pytest.mark.slow
def test_trainables_do_not_import_the_orchestrator(folder):
    modules = [module_name(path) for path in product_files() if path.parts[0] == "trainables"]
    loaded_modules = modules_after("\n".join(f"import {name}" for name in modules), folder)
    assert not loaded_modules & {"ray", "optuna", "mlflow", "sqlalchemy", "orchestrator", "search_spaces"}
    assert "torch" in loaded_modules


def test_search_spaces_import_nothing_heavy(folder):
    modules = [module_name(path) for path in product_files() if path.parts[0] == "search_spaces"]
    loaded_modules = modules_after("\n".join(f"import {name}" for name in modules), folder)
    assert not loaded_modules & (ALL_HEAVY | {"orchestrator", "trainables", "pydantic"})
