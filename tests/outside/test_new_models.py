"""A new model needs only `Config` and `Encoder`: weights, dropout and costs of plain modules work."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.support.numerics.distributions import SPEC, install_gru_kit
from tests.support.processes.in_process import Run
from tests.support.training_code.own_code import forgotten
from trainables import costs
from trainables.assembly import build_model, initialise, model_config
from trainables.data.synthetic import synthetic_batch
from trainables.layers.dropout import set_dropout_context
from trainables.layers.linear import Linear
from trainables.types import TaskShape

SHAPE = TaskShape(head="classify", vocabulary_size=18, num_classes=10, pad_id=16, length_max=100)
BEGIN = """\
import torch
from torch import nn
from trainables.settings import ModelSettings
from trainables.types import Encoded

class Config(ModelSettings):
    parts: int = 1

class Encoder(nn.Module):
    def __init__(self, config):
        super().__init__()
"""
END = """
    def forward(self, x, mask):
        states = self.states(x, mask)
        return Encoded.of_fixed_depth(states, states.sum(1), 2)
"""
STATES = "\n    def states(self, x, mask):\n        return "
RUNS = "\n    runs = iter(range(1, 99))\n"
LSTM = f"{STATES}self.lstm(x)[0]\n"


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the import path, whose modules are forgotten after the test."""
    folder = tmp_path / "site"
    (folder / "mine").mkdir(parents=True)
    monkeypatch.syspath_prepend(folder)
    with forgotten(tmp_path):
        yield folder


def model(site: Path, body: str, name: str = "model") -> dict[str, object]:
    """Return the settings of a model whose constructor and method `states` are `body`."""
    (site / "mine" / f"{name}.py").write_text(f"{BEGIN}{body}{END}")
    return {"name": f"mine.{name}", "width": 8, "dropout": 0.0}


def test_spec_of_an_installed_package_passes_the_ablation_check(haltsweep: Run, site: Path) -> None:
    install_gru_kit(site)
    planned = haltsweep("plan", str(SPEC))
    assert planned.code == 0, planned.err
    # The FLOPs are three gates of two products with 16 x 16 weights at 9 tokens, and the readout.
    assert 2 * 9 * 3 * 2 * 16 * 16 + 2 * (16 * 16 + 16) == 28_192
    assert "28.2 k FLOPs" in planned.out
    plan_by_module = haltsweep(
        "plan", str(SPEC), "baseline.model.name=gru_kit.gru", "baseline.task.name=gru_kit.majority"
    )
    assert plan_by_module.code == 0, plan_by_module.err


def test_weights_of_plain_modules_depend_only_on_seed_and_name() -> None:
    def build_modules(**parts: nn.Module) -> nn.ModuleDict:
        modules = nn.ModuleDict(parts)
        initialise(modules, 5)
        return modules

    state_before = torch.random.get_rng_state()
    kinds = {
        "gru": lambda: nn.GRU(4, 4),
        "norm": lambda: nn.BatchNorm1d(4),
        "linear": lambda: nn.Linear(4, 4),
    }
    kinds |= {"attention": lambda: nn.MultiheadAttention(4, 2), "table": lambda: nn.Embedding(3, 4)}
    separate_modules = {name: build_modules(**{name: kind()}) for name, kind in kinds.items()}
    joint_modules = build_modules(first=Linear(3, 3), **{name: kind() for name, kind in kinds.items()})
    for name, part in separate_modules.items():
        for (key, separate_weight), joint_weight in zip(
            part[name].state_dict().items(), joint_modules[name].state_dict().values(), strict=True
        ):
            assert torch.equal(separate_weight, joint_weight), (name, key)
    assert not torch.equal(
        build_modules(other=nn.Linear(4, 4))["other"].weight, separate_modules["linear"]["linear"].weight
    )
    assert not separate_modules["attention"][
        "attention"
    ].out_proj.bias.any()  # the initial value of its constructor
    torch.random.set_rng_state(state_before)
    nn.Linear(4, 4)


def test_building_leaves_the_global_generator_and_buffers_unchanged(site: Path) -> None:
    settings = model(
        site,
        "        self.register_buffer('steps', torch.arange(3.0))\n        self.scale = torch.tensor(2.0)\n"
        "        self.lstm = nn.LSTM(8, 8, batch_first=True)\n"
        "\n    def states(self, x, mask):\n        return self.lstm(x)[0] * self.scale + self.steps.sum()\n",
    )
    state_before = torch.random.get_rng_state()
    first_model, same_model, other_model = (build_model(settings, SHAPE, seed) for seed in (1, 1, 2))
    assert torch.equal(state_before, torch.random.get_rng_state())
    assert first_model.encoder.steps.tolist() == [0, 1, 2]
    assert first_model.encoder.scale == 2
    assert torch.equal(first_model.encoder.lstm.weight_hh_l0, same_model.encoder.lstm.weight_hh_l0)
    assert not torch.equal(first_model.encoder.lstm.weight_hh_l0, other_model.encoder.lstm.weight_hh_l0)
    assert all(weight.is_meta for weight in build_model(settings, SHAPE, 1, "meta").parameters())


def test_plain_dropout_depends_only_on_seed_and_step(site: Path) -> None:
    settings = model(
        site,
        "        self.inner = nn.Linear(8, 8)\n        self.drop = nn.Dropout(0.5)\n"
        "\n    def states(self, x, mask):\n        return self.drop(self.inner(x))\n",
    )
    built, batch = build_model(settings, SHAPE, 3), synthetic_batch(SHAPE, 4, 9, 0)
    state_before = torch.random.get_rng_state()

    def loss(step: int) -> torch.Tensor:
        set_dropout_context(built, 3, step)
        return built(batch).loss

    assert torch.equal(loss(1), loss(1))
    assert not torch.equal(loss(1), loss(2))
    assert torch.equal(state_before, torch.random.get_rng_state())


def test_undeclared_costs_are_counted(site: Path) -> None:
    """Fused kernels are counted too, although PyTorch's counter lacks them."""
    lstm = model_config(model(site, f"        self.lstm = nn.LSTM(8, 8, batch_first=True)\n{LSTM}", "lstm"))
    readout = 2 * (8 * 8 + 8 * 10)
    gates = 2 * 4 * 2 * 8 * 8
    assert costs.depth_range(lstm, 9) == (2, 2)
    for length in (9, 64, 500):
        assert costs.flops(lstm, SHAPE, length, 2) == pytest.approx(length * gates + readout)
    body = "        self.look = nn.MultiheadAttention(8, 2, batch_first=True)\n"
    body += "\n    def states(self, x, mask):\n        return self.look(x, x, x, need_weights=False)[0]\n"
    attention = model_config(model(site, body, "attention"))
    for length in (9, 300):
        expected = length * 4 * 2 * 8 * 8 + 2 * 2 * length * length * 8
        assert costs.flops(attention, SHAPE, length, 2) == pytest.approx(expected + readout)
    few_rows_bytes, many_rows_bytes = (costs.peak_memory_bytes(lstm, SHAPE, rows, 40) for rows in (1, 11))
    assert many_rows_bytes - few_rows_bytes >= 10 * 40 * 8 * 4


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (f"        self.start = nn.Parameter(torch.randn(8))\n{STATES}x + self.start\n", "encoder.start "),
        ("        self.inner = nowhere\n", "site/mine/model.py:12: NameError: "),
        (
            f"        self.inner = nn.Linear(8, 8)\n{STATES}self.inner(x).roll(next(self.runs), -1)\n{RUNS}",
            "baseline: ",
        ),
        (f"        self.inner = nn.Linear(8, 8)\n{STATES}self.outer(x)\n", "model.py:15: AttributeError: "),
    ],
)
def test_faults_of_a_model_are_reported_by_the_plan(
    haltsweep: Run, site: Path, body: str, message: str
) -> None:
    install_gru_kit(site)
    model(site, body)
    result = haltsweep(
        "plan", str(SPEC), "baseline.model={name: mine.model, width: 8}", "arms={}", "search=null"
    )
    assert result.code == 2, result
    assert message in result.err
    assert "Traceback" not in result.err


def test_config_that_cannot_be_stored_is_refused_with_its_place(haltsweep: Run, site: Path) -> None:
    install_gru_kit(site)
    model(site, f"        self.lstm = nn.LSTM(8, 8)\n{LSTM}")
    module = site / "mine" / "model.py"
    module.write_text(module.read_text().replace("parts: int = 1", "parts: object = print"))
    result = haltsweep(
        "plan", str(SPEC), "baseline.model={name: mine.model, width: 8}", "arms={}", "search=null"
    )
    assert (result.code, result.err.count("\n")) == (2, 1)
    assert "baseline.model: mine.model " in result.err
