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


RUN_CONTROL = """
import argparse
p = argparse.ArgumentParser()
p.add_argument("--resume", action="store_true")
p.add_argument("--no-cuda", action="store_true")
p.add_argument("--num-workers", type=int, default=4)
p.add_argument("--max-steps", type=int, default=-1)
p.add_argument("--type", default="gpt", help="kind of model, mlp|rnn|gpt")
p.add_argument("--batch-size", type=int, default=32)
p.add_argument("--n-layer", type=int, default=4)
p.add_argument("--learning-rate", type=float, default=5e-4)
p.add_argument("--weight-decay", type=float, default=0.01)
"""


def test_arms_are_about_the_model_and_the_search_sketch_plans(tmp_path, monkeypatch, haltsweep):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text(RUN_CONTROL)
    assert haltsweep("new", "--from", "job.py").code == 0
    text = (tmp_path / "job.yaml").read_text()
    arms = yaml.safe_load(text)["arms"].values()
    assert [arm["set"] for arm in arms] == [{"type": "mlp"}, {"n_layer": 8}, {"weight_decay": 0.02}]
    assert "max_steps: -1 #" in text
    head, sketch = text.split("# search:")
    (tmp_path / "job.yaml").write_text(
        head + "search:" + sketch.replace("\n#", "\n").replace("answer:", "# answer:")
    )
    planned = haltsweep("plan", "--json", "job.yaml")
    assert planned.code == 0, planned.err


ONE_METRIC = """
import argparse
p = argparse.ArgumentParser()
p.add_argument("--lr", type=float, default=0.1)
p.add_argument("--dropout", type=float, default=0.1)
print({"test_loss": 0.5})
"""


def test_the_search_sketch_has_no_test_data_and_no_field_of_an_arm(tmp_path, monkeypatch, haltsweep):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text(ONE_METRIC)
    assert haltsweep("new", "--from", "job.py").code == 0
    head, sketch = (tmp_path / "job.yaml").read_text().split("# search:")
    (tmp_path / "job.yaml").write_text(head + "search:" + sketch.replace("\n#", "\n"))
    planned = haltsweep("plan", "--json", "job.yaml")
    assert planned.code == 0, planned.err
    found = json.loads(planned.out)
    assert [objective["metric"] for objective in found["search"]["objectives"]] == ["valid/loss"]
    assert found["answer"]["outcomes"] == ["test_loss"]


def test_check_warns_of_texts_that_are_still_to_be_written(tmp_path, monkeypatch, haltsweep):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text(RUN_CONTROL)
    assert haltsweep("new", "--from", "job.py").code == 0
    result = haltsweep("check", "job.yaml")
    assert result.code == 0
    assert "question" in result.err
    spec = (tmp_path / "job.yaml").read_text()
    (tmp_path / "job.yaml").write_text(
        spec.replace("say why", "depth").replace("What do you want to", "Do we")
    )
    assert "question" not in haltsweep("check", "job.yaml").err


@pytest.mark.parametrize(
    ("text", "place"),
    [(None, "job.py"), ("x =", "job.py:1"), ("print('no flags')", "job.py")],
)
def test_what_is_no_such_script_is_bad_input(text, place, tmp_path, monkeypatch, haltsweep):
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / "job.py").write_text(text)
    result = haltsweep("new", "--from", "job.py")
    assert result.code == 2
    assert result.err.startswith(place)
    assert not (tmp_path / "job.yaml").exists()
