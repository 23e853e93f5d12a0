"""`haltsweep new --from` turns the flags of a script into a spec."""

import json

import pytest
import yaml

from orchestrator.cli.script_flags import Flag, read_script
from orchestrator.cli.script_spec import MAX_ARMS

SCRIPT_TEMPLATE = """
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


def script_with_metric(metric):
    return SCRIPT_TEMPLATE.replace("METRIC", repr(metric))


def test_script_flags_have_defaults_choices_and_kinds():
    assert read_script(script_with_metric("loss")).flags == (
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
        ("test/accuracy", {"metric": "test/accuracy", "goal": "max"}),
        ("val_loss", {"metric": "val_loss", "goal": "min", "split": "valid"}),
        ("loss", {"metric": "valid/loss", "goal": "min"}),
    ],
)
def test_each_arm_of_the_new_spec_changes_one_setting(metric, answer, tmp_path, haltsweep):
    (tmp_path / "My_Train.py").write_text(script_with_metric(metric))
    assert haltsweep("new", "--from", "My_Train.py").code == 0
    spec = yaml.safe_load((tmp_path / "My_Train.yaml").read_text())
    baseline = {"batch_size": 64, "lr": 1e-3, "opt": "sgd", "fast": False, "amp": True, "bias": True}
    assert spec["baseline"] == baseline
    assert spec["answer"] == answer
    assert 0 < len(spec["arms"]) <= MAX_ARMS
    assert all(len(arm["set"]) == 1 for arm in spec["arms"].values())
    plan_result = haltsweep("plan", "--json", "My_Train.yaml")
    assert plan_result.code == 0, plan_result.err
    assert {arm["name"] for arm in json.loads(plan_result.out)["arms"]} == {"baseline", *spec["arms"]}


TRANSFORMER_SCRIPT = """
import argparse
p = argparse.ArgumentParser()
p.add_argument("--resume", action="store_true")
p.add_argument("--no-cuda", action="store_true")
p.add_argument("--num-workers", type=int, default=4)
p.add_argument("--max-steps", type=int, default=-1)
p.add_argument("--type", default="gpt", help="which kind to use, mlp|rnn|gpt")
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--n-layer", type=int, default=4)
p.add_argument("--learning-rate", type=float, default=5e-4)
p.add_argument("--weight-decay", type=float, default=0.01)
"""


def test_new_spec_has_model_arms_and_a_valid_search_draft(tmp_path, haltsweep):
    (tmp_path / "job.py").write_text(TRANSFORMER_SCRIPT)
    assert haltsweep("new", "--from", "job.py").code == 0
    text = (tmp_path / "job.yaml").read_text()
    arms = yaml.safe_load(text)["arms"].values()
    assert [arm["set"] for arm in arms] == [{"weight_decay": 0.0}, {"type": "mlp"}, {"n_layer": 8}]
    assert "max_steps: -1 #" in text
    head, search_draft = text.split("# search:")
    (tmp_path / "job.yaml").write_text(
        head + "search:" + search_draft.replace("\n#", "\n").replace("answer:", "# answer:")
    )
    plan_result = haltsweep("plan", "--json", "job.yaml")
    assert plan_result.code == 0, plan_result.err


@pytest.mark.parametrize(("text", "location"), [("x =", "job.py:1"), ("print('no flags')", "job.py")])
def test_script_without_flags_is_refused(text, location, tmp_path, haltsweep):
    (tmp_path / "job.py").write_text(text)
    result = haltsweep("new", "--from", "job.py")
    assert result.code == 2
    assert result.err.startswith(location)
    assert not (tmp_path / "job.yaml").exists()


def test_secrets_and_converted_defaults_stay_out_of_a_new_spec(tmp_path, haltsweep):
    flags = [
        '"--api-key", default="5f0c"',
        '"--amp", type=lambda text: text == "1", default=True',
        '"--hidden", default=3',
        '"--dropout", type=float, default=0.5',
        '"--lr-decay", type=float, default=0.97',
    ]
    lines = ["import argparse", "p = argparse.ArgumentParser()"]
    lines += [f"p.add_argument({flag})" for flag in flags]
    (tmp_path / "job.py").write_text("\n".join(lines))
    assert haltsweep("new", "--from", "job.py").code == 0
    spec = yaml.safe_load((tmp_path / "job.yaml").read_text())
    assert spec["baseline"] == {"dropout": 0.5, "lr_decay": 0.97}
    assert [arm["set"] for arm in spec["arms"].values()] == [{"dropout": 0.0}]
    assert "5f0c" not in (tmp_path / "job.yaml").read_text()
