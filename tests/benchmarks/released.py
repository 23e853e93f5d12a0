"""Training steps of the authors' released code compared with those of haltsweep, in turns in one process.

    python -m tests.benchmarks.released --code FOLDER [--only gut tlb] [--width 128] [--short] ...

FOLDER holds a checkout of github.com/JRC1995/InvestigatingRecurrentTransformers, which needs `einops`. The
script puts each of its encoders between an embedding and a readout like ours. Instead of flash-attn they use
PyTorch's fused kernel or the explicit product in 32 bits, whichever is faster. Both sides have the same sizes
and dropout rates. Halting is switched off, so both run all layers. On a CPU the clock counts processor time.
"Speed-up" is the time of the released step divided by ours.
"""

import argparse
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tests.benchmarks import _timing, systems
from tests.benchmarks._straightforward import training_step
from trainables.types import Batch

NEVER = -30.0
"""Bias of a halting gate that never halts."""
DROPOUT = 0.1
SYSTEMS = {
    "transformer": ("Transformer_config", {"name": "transformer", "pooling": "mean"}),
    "ut": ("UT_config", systems.SYSTEMS["ut"]),
    "gut": ("GUT_end_config", systems.SYSTEMS["gut"]),
    "tlb": ("TLB_config", {"name": "tlb"}),
    "gutlb": ("GUTLB_config", systems.SYSTEMS["gutlb"]),
}
"""By label: the released configuration and the settings of haltsweep."""
LAYERS = {"transformer": 4, "ut": 10, "gut": 10, "tlb": 2, "gutlb": 5}


class Released(nn.Module):
    """A released encoder between an embedding and a readout."""

    def __init__(self, label: str, code: ModuleType, options: argparse.Namespace) -> None:
        super().__init__()
        width = options.width
        config = vars(getattr(code.configs, SYSTEMS[label][0])())
        config |= {"hidden_size": width, "embd_dim": width, "ffn_dim": 2 * width, "ffn_gate_dim": 2 * width}
        config |= {"heads": options.heads, "head_dim": width // options.heads, "layers": LAYERS[label]}
        config |= {"dropout": DROPOUT, "attn_dropout": DROPOUT}
        self.embedding = nn.Embedding(systems.SHAPE.vocabulary_size, width)
        self.encoder = getattr(code.encoders, config["encoder_type"])(config)
        self.readout = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, systems.SHAPE.num_classes)
        )
        for name, parameter in self.named_parameters():
            if name.endswith("halt_layers.2.bias"):
                nn.init.constant_(parameter, NEVER)

    def forward(self, batch: Batch) -> Tensor:
        """Return losses with ponder costs."""
        x = F.dropout(self.embedding(batch.tokens), DROPOUT, self.training)
        encoded = self.encoder(x, batch.mask.float())
        loss = F.cross_entropy(self.readout(encoded["global_state"]), batch.labels, reduction="none")
        return loss if encoded["aux_loss"] is None else loss + encoded["aux_loss"]


def fused_attention(
    attention: Any, q: Tensor, kv: Tensor, query_padding_mask: Tensor, key_padding_mask: Tensor
) -> Tensor:
    """The released attention by PyTorch's fused kernel; shapes are (inputs, tokens, heads, head width)."""
    k, v = kv.unbind(2)
    q, k, v = (tensor.transpose(1, 2) for tensor in (q, k, v))
    rate = attention.config["attn_dropout"] if attention.training else 0.0
    is_visible = key_padding_mask.bool()[:, None, None]
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask=is_visible, dropout_p=rate, scale=attention.scaling
    )
    return out.transpose(1, 2)


def explicit_attention(
    attention: Any, q: Tensor, kv: Tensor, query_padding_mask: Tensor, key_padding_mask: Tensor
) -> Tensor:
    """Compute the released attention by the explicit product."""
    k, v = kv.unbind(2)
    logits = torch.einsum("nqhe,nkhe->nhqk", q, k) * attention.scaling
    logits = logits.masked_fill(~key_padding_mask.bool()[:, None, None], float("-inf"))
    return torch.einsum("nhqk,nkhe->nqhe", attention.dropout(logits.softmax(-1)), v)


def load_released_code(folder: Path) -> ModuleType:
    """Return a namespace of the released modules `configs` and `encoders`, and the class `FlashMHA`."""
    flash = ModuleType("flash_attn")
    flash.flash_attn_varlen_kvpacked_func = None  # type: ignore[attr-defined]
    sys.modules["flash_attn"] = flash
    sys.path.insert(0, str(folder))
    code = ModuleType("released")
    code.configs = importlib.import_module("configs.listopsc2_configs")  # type: ignore[attr-defined]
    code.encoders = importlib.import_module("models.encoders")  # type: ignore[attr-defined]
    code.FlashMHA = importlib.import_module("models.modules.FlashMHA").FlashMHA  # type: ignore[attr-defined]
    del sys.modules["flash_attn"]
    return code


def build_haltsweep_model(label: str, options: argparse.Namespace) -> nn.Module:
    """Build haltsweep's model of the same sizes."""
    raw = SYSTEMS[label][1]
    depth = "layers" if raw["name"] in systems.UNSHARED else "max_layers"
    rates = {"dropout": DROPOUT, "attention_dropout": DROPOUT, depth: LAYERS[label]}
    model = systems.build(systems.settings(raw, options, **rates), options.device)
    for name, parameter in model.named_parameters():
        if name.endswith("halt.outer.bias"):
            nn.init.constant_(parameter, NEVER)
    return model


def with_kernel(
    step: Callable[[], None], code: ModuleType, kernel: Callable[..., Tensor]
) -> Callable[[], None]:
    """Return `step` of released code with attention by `kernel`."""

    def run() -> None:
        code.FlashMHA.flash = kernel
        step()

    return run


def measure(label: str, code: ModuleType, options: argparse.Namespace) -> dict[str, Any]:
    """Return one row of the table."""
    batch, own_model = systems.batches(options), build_haltsweep_model(label, options)
    released_model = Released(label, code, options).to(options.device)
    released_step = training_step(released_model, lambda: released_model(batch))
    steps = {
        "fused": with_kernel(released_step, code, fused_attention),
        "explicit": with_kernel(released_step, code, explicit_attention),
        "ours": training_step(own_model, systems.objective(own_model, batch)),
    }
    seconds = _timing.time_steps(steps, options)
    released_seconds = min(seconds["fused"], seconds["explicit"])
    return {
        "system": label,
        "released ms": 1e3 * released_seconds,
        "ours ms": 1e3 * seconds["ours"],
        "speed-up": released_seconds / seconds["ours"],
        "parameters: released": sum(parameter.numel() for parameter in released_model.parameters()),
        "ours": sum(parameter.numel() for parameter in own_model.parameters()),
    }


def main() -> None:
    parser = _timing.parser(__doc__, width=128, heads=4, batch=32, length=100, repeats=5)
    parser.add_argument("--code", type=Path, required=True, help="checkout of the released code")
    parser.add_argument("--only", nargs="+", choices=sorted(SYSTEMS), default=list(SYSTEMS))
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    systems.add_short(parser)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    code = load_released_code(options.code)
    _timing.print_results([measure(label, code, options) for label in options.only], options)


if __name__ == "__main__":
    main()
