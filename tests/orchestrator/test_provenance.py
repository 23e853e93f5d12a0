"""Provenance describes the machine, the checkout and the environment."""

import json
import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from orchestrator import provenance as module
from orchestrator.provenance import PACKAGES, provenance


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    result = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True
    )
    return result.stdout.strip()


@pytest.fixture
def checkout(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("x = 1")
    git(tmp_path, "add", "code.py")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def test_clean_and_changed_checkouts_are_distinguished(checkout):
    commit = git(checkout, "rev-parse", "HEAD")
    (checkout / "untracked.txt").write_text("results")
    clean = provenance(checkout)
    assert (clean.commit, clean.dirty, clean.directory) == (commit, False, str(checkout))
    (checkout / "code.py").write_text("x = 2")
    assert (provenance(checkout).commit, provenance(checkout).dirty) == (commit, True)


def test_commits_of_the_code_and_of_the_launch_folder_are_separate(checkout, tmp_path_factory, monkeypatch):
    (checkout / "orchestrator").mkdir()
    (checkout / "orchestrator" / "plan.py").write_text("x = 1")
    git(checkout, "add", "orchestrator")
    git(checkout, "commit", "-q", "-m", "second")
    commit = git(checkout, "rev-parse", "HEAD")
    monkeypatch.setattr(module, "PACKAGE_FOLDER", checkout)
    other_folder = tmp_path_factory.mktemp("elsewhere")
    clean = provenance(other_folder)
    assert (clean.commit, clean.code_commit, clean.code_changes) == (None, commit, "")
    digests = []
    for text in ("x = 2", "x = 3"):
        (checkout / "orchestrator" / "plan.py").write_text(text)
        digests.append(provenance(other_folder).code_changes)
    assert all(digests)
    assert len(set(digests)) == 2
    monkeypatch.setattr(module, "PACKAGE_FOLDER", other_folder)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(other_folder.parent))
    assert (provenance(checkout).code_commit, provenance(checkout).code_changes) == (None, None)


def commit_package_file(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Commit a file of haltsweep's package, and use the checkout as the package's checkout."""
    code = checkout / "orchestrator" / "plan.py"
    code.parent.mkdir()
    code.write_text("x = 1\n")
    git(checkout, "add", "orchestrator")
    git(checkout, "commit", "-q", "-m", "second")
    monkeypatch.setattr(module, "PACKAGE_FOLDER", checkout)
    return code


def test_changes_of_the_code_are_stored_without_secrets_and_within_limits(checkout, monkeypatch):
    code = commit_package_file(checkout, monkeypatch)
    assert provenance(checkout).code_diff == ""
    secrets = ("hunter2", "tops3cret", "sk-123")
    code.write_text(
        f"URL = 'postgresql://me:{secrets[0]}@host/db'\nPASSWORD = '{secrets[1]}'\n"
        f'given = {{"api_key": "{secrets[2]}"}}\nname = \'kept\'\n'
    )
    diff = provenance(checkout).code_diff
    assert "-x = 1" in diff
    assert "+name = 'kept'" in diff
    assert "+PASSWORD = '***'" in diff
    assert not [secret for secret in secrets if secret in diff]
    (checkout / "settings.env").write_text("LOGIN=me\n")
    git(checkout, "add", "settings.env")
    assert "settings.env" not in provenance(checkout).code_diff
    code.write_text("y = 1\n" * module.MAX_DIFF_CHARS)
    diff = provenance(checkout).code_diff
    assert len(diff) < module.MAX_DIFF_CHARS + 100
    code.write_text("y = 1\n" * ((module.MAX_DIFF_CHARS - 400) // 7) + f"x = {'1 + ' * 99}2\n")
    assert "1 + 1" not in provenance(checkout).code_diff, "the diff must not end within a line"


def test_changes_of_the_code_do_not_depend_on_git_settings_and_may_be_any_bytes(checkout, monkeypatch):
    code = commit_package_file(checkout, monkeypatch)
    code.write_bytes(b"x = 2\ny = '\xff'\n")
    first_provenance = provenance(checkout)
    assert "+x = 2\n+y = '\N{REPLACEMENT CHARACTER}'" in first_provenance.code_diff
    git(checkout, "config", "color.ui", "always")
    git(checkout, "config", "diff.external", "echo")
    git(checkout, "config", "diff.noprefix", "true")
    collected = provenance(checkout)
    assert (collected.code_diff, collected.code_changes) == (
        first_provenance.code_diff,
        first_provenance.code_changes,
    )


def test_all_installed_packages_are_listed():
    collected = provenance().packages
    assert {*collected} == {f"{item.name}=={item.version}" for item in metadata.distributions() if item.name}
    assert list(collected) == sorted(collected, key=str.casefold)


def test_folder_outside_a_checkout_has_no_commit(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    collected = provenance(tmp_path)
    assert (collected.commit, collected.dirty) == (None, None)


def test_missing_git_leaves_the_commit_empty(checkout, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert provenance(checkout).commit is None


def test_versions_list_only_installed_packages(monkeypatch):
    monkeypatch.setattr(module, "PACKAGES", ("torch", "no-such-distribution"))
    assert list(provenance().versions) == ["torch"]


def test_versions_include_distributions_of_given_modules():
    collected = provenance(modules=["sklearn.tree", "no_such_module"], code="digest")
    assert collected.versions["scikit-learn"] == metadata.version("scikit-learn")
    assert "no_such_module" not in collected.versions
    assert collected.code == "digest"


def test_distributions_of_a_module_match_importlib():
    """`packages_distributions` reads every file of all distributions."""
    owners = metadata.packages_distributions()
    for package in ("sklearn", "yaml", "_pytest", "numpy", "tests", "orchestrator", "no_such_module"):
        versions = provenance(modules=[f"{package}.x"]).versions.keys() - provenance().versions.keys()
        assert versions == {*owners.get(package, ())} - {*PACKAGES}


def test_provenance_is_json(tmp_path):
    collected = provenance(tmp_path).to_json()
    assert json.loads(json.dumps(collected)) == collected
    assert collected["cpu"]
    assert collected["cpu_count"] >= 1
    assert collected["host"]
    assert collected["python"].count(".") == 2
    assert isinstance(collected["command"], list)


def test_devices_are_read_from_the_driver(tmp_path, monkeypatch):
    for number, name in enumerate(["NVIDIA H200", "NVIDIA A100-SXM4-80GB"]):
        folder = tmp_path / "gpus" / f"0000:0{number}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t {name}\nIRQ:   \t\t 11\n")
    monkeypatch.setattr(module, "GPU_INFO_FOLDER", tmp_path / "gpus")
    assert provenance().devices == ("NVIDIA H200", "NVIDIA A100-SXM4-80GB")


def test_devices_are_read_from_nvidia_smi_without_the_driver_folder(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho NVIDIA H200\necho NVIDIA H200\n")
    program.chmod(0o755)
    monkeypatch.setattr(module, "GPU_INFO_FOLDER", tmp_path / "nothing")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert provenance().devices == ("NVIDIA H200", "NVIDIA H200")
    program.write_text("#!/bin/sh\nexit 9\n")
    assert provenance().devices == ()


def test_program_without_an_answer_is_ignored(tmp_path, monkeypatch):
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(module, "GPU_INFO_FOLDER", tmp_path / "nothing")
    monkeypatch.setattr(module, "GIT_TIMEOUT_S", 0.1)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert provenance().devices == ()


def test_command_masks_the_password(monkeypatch):
    monkeypatch.setattr("sys.argv", ["haltsweep", "launch", "--storage", "postgresql://ann:secret@host/db"])
    assert provenance().command[-1] == "postgresql://ann:***@host/db"
