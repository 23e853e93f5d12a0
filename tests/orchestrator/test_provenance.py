"""Provenance: what the machine, the checkout and the environment say."""

import json
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from orchestrator import provenance as module
from orchestrator.provenance import PACKAGES, provenance


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("x = 1")
    git(tmp_path, "add", "code.py")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def test_a_clean_and_a_changed_checkout(checkout: Path) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    (checkout / "untracked.txt").write_text("results")
    clean = provenance(checkout)
    assert (clean.commit, clean.dirty, clean.directory) == (commit, False, str(checkout))
    (checkout / "code.py").write_text("x = 2")
    assert (provenance(checkout).commit, provenance(checkout).dirty) == (commit, True)


def test_the_commit_of_the_code_is_not_that_of_the_folder_it_is_launched_from(
    checkout: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    (checkout / "orchestrator").mkdir()
    (checkout / "orchestrator" / "plan.py").write_text("x = 1")
    git(checkout, "add", "orchestrator")
    git(checkout, "commit", "-q", "-m", "second")
    commit = git(checkout, "rev-parse", "HEAD")
    monkeypatch.setattr(module, "CODE", checkout)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    clean = provenance(elsewhere)
    assert (clean.commit, clean.code_commit, clean.code_changes) == (None, commit, "")
    changed = []
    for text in ("x = 2", "x = 3"):
        (checkout / "orchestrator" / "plan.py").write_text(text)
        changed.append(provenance(elsewhere).code_changes)
    assert all(changed)
    assert len(set(changed)) == 2
    monkeypatch.setattr(module, "CODE", elsewhere)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(elsewhere.parent))
    assert (provenance(checkout).code_commit, provenance(checkout).code_changes) == (None, None)


def source_of_ours(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A committed file of haltsweep's code, as which the checkout is taken."""
    code = checkout / "orchestrator" / "plan.py"
    code.parent.mkdir()
    code.write_text("x = 1\n")
    git(checkout, "add", "orchestrator")
    git(checkout, "commit", "-q", "-m", "second")
    monkeypatch.setattr(module, "CODE", checkout)
    return code


def test_changes_of_the_code_are_told_without_secrets_and_within_bounds(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = source_of_ours(checkout, monkeypatch)
    assert provenance(checkout).code_diff == ""
    secrets = ("hunter2", "tops3cret", "sk-123")
    code.write_text(
        f"URL = 'postgresql://me:{secrets[0]}@host/db'\nPASSWORD = '{secrets[1]}'\n"
        f'given = {{"api_key": "{secrets[2]}"}}\nname = \'kept\'\n'
    )
    shown = provenance(checkout).code_diff
    assert "-x = 1" in shown
    assert "+name = 'kept'" in shown
    assert "+PASSWORD = '***'" in shown
    assert not [each for each in secrets if each in shown]
    (checkout / "settings.env").write_text("LOGIN=me\n")
    git(checkout, "add", "settings.env")
    assert "settings.env" not in provenance(checkout).code_diff
    code.write_text("y = 1\n" * module.DIFF_MOST)
    shown = provenance(checkout).code_diff
    assert shown.endswith("more characters")
    assert len(shown) < module.DIFF_MOST + 100
    code.write_text("y = 1\n" * ((module.DIFF_MOST - 400) // 7) + f"x = {'1 + ' * 99}2\n")
    assert "1 + 1" not in provenance(checkout).code_diff, "no half of a line"


def test_changes_of_the_code_do_not_depend_on_who_asks_and_may_be_any_bytes(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = source_of_ours(checkout, monkeypatch)
    code.write_bytes(b"x = 2\ny = '\xff'\n")
    plain = provenance(checkout)
    assert "+x = 2\n+y = '\N{REPLACEMENT CHARACTER}'" in plain.code_diff
    git(checkout, "config", "color.ui", "always")
    git(checkout, "config", "diff.external", "echo")
    git(checkout, "config", "diff.noprefix", "true")
    found = provenance(checkout)
    assert (found.code_diff, found.code_changes) == (plain.code_diff, plain.code_changes)


def test_everything_installed_is_listed() -> None:
    found = provenance().packages
    assert {*found} == {f"{each.name}=={each.version}" for each in metadata.distributions() if each.name}
    assert list(found) == sorted(found, key=str.casefold)


def test_outside_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    found = provenance(tmp_path)
    assert (found.commit, found.dirty) == (None, None)


def test_without_git(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert provenance(checkout).commit is None


def test_versions_are_those_installed_and_missing_ones_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PACKAGES", ("torch", "no-such-distribution"))
    assert list(provenance().versions) == ["torch"]


def test_modules_from_outside_tell_the_version_of_their_distribution() -> None:
    found = provenance(modules=["sklearn.tree", "no_such_module"], code="digest")
    assert found.versions["scikit-learn"] == metadata.version("scikit-learn")
    assert "no_such_module" not in found.versions
    assert found.code == "digest"


def test_distributions_of_a_module_are_those_that_python_finds() -> None:
    """Which looks for every file of all of them."""
    owners = metadata.packages_distributions()
    for package in ("sklearn", "yaml", "_pytest", "numpy", "tests", "orchestrator", "no_such_module"):
        found = provenance(modules=[f"{package}.x"]).versions.keys() - provenance().versions.keys()
        assert found == {*owners.get(package, ())} - {*PACKAGES}


def test_it_is_json(tmp_path: Path) -> None:
    found = provenance(tmp_path).to_json()
    assert json.loads(json.dumps(found)) == found
    assert found["cpu"]
    assert found["cpu_count"] >= 1
    assert found["host"]
    assert found["python"].count(".") == 2
    assert isinstance(found["command"], list)


def test_devices_are_read_from_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, name in enumerate(["NVIDIA H200", "NVIDIA A100-SXM4-80GB"]):
        folder = tmp_path / "gpus" / f"0000:0{number}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t {name}\nIRQ:   \t\t 11\n")
    monkeypatch.setattr(module, "NVIDIA", tmp_path / "gpus")
    assert provenance().devices == ("NVIDIA H200", "NVIDIA A100-SXM4-80GB")


def test_devices_without_the_drivers_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho NVIDIA H200\necho NVIDIA H200\n")
    program.chmod(0o755)
    monkeypatch.setattr(module, "NVIDIA", tmp_path / "nothing")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert provenance().devices == ("NVIDIA H200", "NVIDIA H200")
    program.write_text("#!/bin/sh\nexit 9\n")
    assert provenance().devices == ()


def test_a_program_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(module, "NVIDIA", tmp_path / "nothing")
    monkeypatch.setattr(module, "ANSWER_S", 0.1)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert provenance().devices == ()


def test_the_command_bears_no_password(monkeypatch):
    monkeypatch.setattr("sys.argv", ["haltsweep", "launch", "--storage", "postgresql://ann:secret@host/db"])
    assert provenance().command[-1] == "postgresql://ann:***@host/db"
