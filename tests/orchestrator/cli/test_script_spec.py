"""`haltsweep new --from`: a script's flags become a spec that plans."""

import json

import pytest
import yaml

from orchestrator.cli.script_flags import Flag, read_script
from orchestrator.cli.script_spec import MAX_ARMS

SCRIPT = """
import argparse
p = argparse.ArgumentParser()
p.add_argument("files", nargs="*")
p.add_argument("--data", required=True)
p.add_argument("-b", "--batch-size", type=int, default=64)
p.add_argument("--lr", type=float, default=1e-3)
p.add_argument("--opt", choices=["sgd", "adam"], default="sgd")
p.add_argument("--fast", action="store_true")
p.add_argument("--no-amp", action="store_false", dest="amp")
p.add_argument("--bias", action=argparse.BooleanOptionalAction, default=True)
p.add_argument("--seed", type=int, default=0)
p.add_argument("--home", default=str(len("computed")))
args = p.parse_args()
raise SystemExit("this script is read, not run")
print({METRIC: 0.5})
"""


def script(metric):
    return SCRIPT.replace("METRIC", repr(metric))


def test_flags_are_read_with_defaults_choices_and_kinds():
    assert read_script(script("loss")).flags == (
        Flag("data", None, is_required=True),
        Flag("batch_size", 64),
        Flag("lr", 1e-3),
        Flag("opt", "sgd", ("sgd", "adam")),
        Flag("fast", default=False, is_switch=True),
        Flag("amp", default=True, is_switch=True),
        Flag("bias", default=True, is_switch=True),
        Flag("home", None),
    )


@pytest.mark.parametrize(
    ("metric", "answer"),
    [
        ("test/accuracy", {"metric": "test/accuracy"}),
        ("test_acc", {"metric": "test_acc", "split": "test"}),
        ("val_loss", {"metric": "val_loss", "split": "valid"}),
        ("loss", {"metric": "valid/loss"}),
    ],
)
def test_the_spec_plans_and_changes_one_setting_an_arm(metric, answer, tmp_path, monkeypatch, haltsweep):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "My_Train.py").write_text(script(metric))
    assert haltsweep("new", "--from", "My_Train.py").code == 0
    spec = yaml.safe_load((tmp_path / "My_Train.yaml").read_text())
    assert spec["baseline"] == {
        "batch_size": 64,
        "lr": 1e-3,
        "opt": "sgd",
        "fast": False,
        "amp": True,
        "bias": True,
    }
    assert spec["answer"] == answer
    assert 0 < len(spec["arms"]) <= MAX_ARMS
    assert all(len(arm["set"]) == 1 for arm in spec["arms"].values())
    planned = haltsweep("plan", "--json", "My_Train.yaml")
    assert planned.code == 0, planned.err
    assert {arm["name"] for arm in json.loads(planned.out)["arms"]} == {"baseline", *spec["arms"]}


@pytest.mark.parametrize(
    ("text", "place"),
    [(None, "job.py"), ("x =", "job.py:1"), ("print('no flags')", "job.py")],
)
def test_what_is_no_such_script_is_bad_input(text, place, tmp_path, monkeypatch, haltsweep):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / "job.py").write_text(text)
    shown = haltsweep("new", "--from", "job.py")
    assert shown.code == 2
    assert shown.err.startswith(place)
    assert not (tmp_path / "job.yaml").exists()
