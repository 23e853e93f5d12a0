"""Search spaces as users write them, from the spec to records, report and the spec of the best trial."""

import csv
import json
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.processes.in_process import Run
from tests.support.training_code.own_code import forgotten

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("untracked")]

CODE = """
from pydantic import BaseModel, model_validator


class Fits(BaseModel):
    width: int
    heads: int

    @model_validator(mode="after")
    def fits(self):
        assert self.width % self.heads == 0, "width must be a multiple of heads"
        return self


def train(settings, trial):
    trial.report(1, {f"{split}/loss": 1.0 for split in ("valid", *trial.splits)})


def narrow(settings, trial):
    if settings["width"] % settings["heads"]:
        trial.infeasible(f"width {settings['width']} with heads {settings['heads']}")
    train(settings, trial)
"""
OBJECTIVES = [{"metric": "valid/loss", "goal": "min"}]
HEADS = {"width": {"int": [16, 96], "step": 8}, "heads": {"choice": [1, 2, 3, 4, 6, 8]}}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "spaces_job.py").write_text(CODE)
    with forgotten(tmp_path):
        yield tmp_path


def launch_spec(
    haltsweep: Run, folder: Path, baseline: dict[str, Any], search: dict[str, Any], **extra_keys: Any
) -> str:
    spec = {
        "name": "one",
        "question": "Which is best?",
        "trainable": "spaces_job:train",
        "baseline": baseline,
        "search": {"objectives": OBJECTIVES, **search},
    }
    (folder / "one.yaml").write_text(yaml.safe_dump(spec | extra_keys, sort_keys=False, allow_unicode=True))
    result = haltsweep("launch", "one.yaml", "--driver", "inline")
    assert result.code == 0, result
    return result.err


def record_rows(haltsweep: Run) -> list[dict[str, str]]:
    result = haltsweep("records", "one")
    assert result.code == 0, result
    return list(csv.DictReader(StringIO(result.out)))


def test_fields_and_arms_accept_names_with_special_characters(haltsweep: Run, folder: Path) -> None:
    baseline = {
        "weight-decay": 0.1,
        "learning rate": 0.1,
        "optimizer.lr": 0.1,
        "lr@head": 0.2,
        "layers": [{"size": 3}, {"size": 4}],
        "λ": 0.1,
        "lambda": 0.5,
    }
    arms = {
        "w/o decay": {"why": "none", "set": {"weight-decay": 0.0}, "drop": ["weight-decay"]},
        "size=5 v2": {"why": "wider", "set": {"layers.0.size": 5}},
        "greek": {"why": "other", "set": {"λ": 0.2}},
        "dotted": {"why": "other", "set": {"optimizer.lr": 0.3}},
        "no_x": {"why": "other", "set": {"lambda": 0.6}},
    }
    also = {"weight-decay": {"float": [0, 1]}, "layers.1.size": {"int": [4, 64], "step": "x2"}}
    search = {"also": also, "trials_per_arm": 2, "constraints": ["`weight-decay` <= 0.5"]}
    launch_spec(haltsweep, folder, baseline, search, arms=arms)
    records = record_rows(haltsweep)
    assert {record["arm"] for record in records} == {"baseline", *arms}
    for row in records:
        settings, arm = json.loads(row["settings"]), arms.get(row["arm"], {"set": {}})
        assert settings.keys() == baseline.keys()
        assert settings["layers"][1]["size"] == int(row["assignment.layers.1.size"]) in (4, 8, 16, 32, 64)
        assert settings["layers"][0]["size"] == (5 if row["arm"] == "size=5 v2" else 3)
        for name in ("λ", "optimizer.lr", "lambda"):
            assert settings[name] == arm["set"].get(name, baseline[name])
        assert settings["weight-decay"] <= 0.5
    best = yaml.safe_load(haltsweep("best", "one", "--arm", "size=5 v2").out)
    assert best["baseline"]["layers"][0] == {"size": 5}
    planned = haltsweep(
        "plan", "one.yaml", "baseline.optimizer.lr=7", "baseline.layers.0.size=9", 'arms."size=5 v2".why=x'
    )
    assert planned.code == 0, planned
    assert "optimizer.lr 7" in planned.out
    assert "[size 9, size 4]" in planned.out


def test_choices_can_be_lists_mappings_and_null(haltsweep: Run, folder: Path) -> None:
    hidden = [[64], [64, 32], [128, 64]]
    optimizers = [{"name": "adam", "betas": [0.9, 0.99]}, {"name": "sgd", "betas": None}]
    also = {
        "hidden": {"choice": hidden},
        "optimizer": {"choice": optimizers},
        "dropout": {"choice": [None, 0.5]},
    }
    baseline = {"hidden": [64], "optimizer": optimizers[0], "dropout": None}
    first = [{"hidden": [128, 64]}]
    search = {"also": also, "trials_per_arm": 12, "sampler": "grid", "first": first}
    launch_spec(haltsweep, folder, baseline, search)
    settings = [json.loads(record_row["settings"]) for record_row in record_rows(haltsweep)]
    assert settings[0] == {**baseline, "hidden": [128, 64]}
    for name, values in (("hidden", hidden), ("optimizer", optimizers), ("dropout", [None, 0.5])):
        assert all(setting[name] in values for setting in settings)
        assert len({json.dumps(setting[name]) for setting in settings}) == len(values)
    assert len({json.dumps(setting, sort_keys=True) for setting in settings}) == 12
    assert yaml.safe_load(haltsweep("best", "one").out)["baseline"] == settings[0]
    (folder / "again.yaml").write_text((folder / "one.yaml").read_text().replace("name: one", "name: two"))
    plan = haltsweep("plan", "again.yaml", "search.first=[{from: one}]")
    assert plan.code == 0, plan
    assert "hidden [128, 64], optimizer name adam, betas [0.9, 0.99]" in " ".join(plan.out.split())


def test_infeasible_trials_are_reported_and_not_counted(haltsweep: Run, folder: Path) -> None:
    search_section = {"also": HEADS, "trials_per_arm": 12, "sampler": "random"}
    launch_spec(haltsweep, folder, {"width": 64, "heads": 4}, search_section, trainable="spaces_job:narrow")
    records = record_rows(haltsweep)
    outcomes = [record["outcome"] for record in records]
    assert outcomes.count("finished") == 12
    assert outcomes.count("infeasible") == len(records) - 12 > 0
    reasons = [record["reason"] for record in records if record["outcome"] == "infeasible"]
    assert all(reason.startswith("width ") for reason in reasons)
    status = haltsweep("status", "one")
    assert status.code == 0
    assert f"{len(reasons)} infeasible" in status.out
    assert f"infeasible: {reasons[0]}" in status.out
    (search,) = json.loads(haltsweep("report", "one", "--json").out)["page"]["searches"]
    assert search["outcomes"] == {"finished": 12, "infeasible": len(reasons)}
