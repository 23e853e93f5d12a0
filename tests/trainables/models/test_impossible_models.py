"""Impossible settings of models are refused."""

from typing import Any

import pytest
from pydantic import ValidationError

from trainables.assembly import model_config


@pytest.mark.parametrize(
    ("names", "changes", "pattern"),
    [
        ("tlb gutlb", {"causal": True, "boundaries": True}, "boundaries=True"),
        ("tlb gutlb", {"causal": True, "readout": "start"}, "readout='start'"),
        ("tlb gutlb", {"chunk": {"size": 0}}, r"chunk.size.*\n.*greater_than_equal"),
        (
            "transformer universal sut",
            {"causal": True, "pooling": "start"},
            "pooling='start' .*causal=True",
        ),
        ("crvnn", {"window": 4}, "window=4"),
        ("crvnn", {"cell_width": 20, "cell": "lstm"}, r"cell='lstm' .*cell_width=20"),
        ("looped", {"recurrence": "unshared"}, r"recurrence: unshared .*loops='task'"),
        ("looped", {"loops": True}, r"loops.*\n.*int_type"),
        ("looped universal", {"width": 100, "heads": 8}, "width=100 and heads=8"),
        ("ndr", {"gate": False, "proposal": "tanh"}, r"proposal .*gate=False"),
        ("sut", {"attention": {"experts": 3}}, "active=4 and experts=3"),
        ("sut", {"kernel": "flash"}, r"kernel .*'flash'"),
        (
            "sut",
            {"absolute_positions": False, "position_layout": "halves"},
            r"absolute_positions=False .*position_layout",
        ),
        ("universal", {"width": 128, "heads": 8, "head_width": 5}, r"head_width .* 5 \(width=128, heads=8\)"),
        ("universal", {"gate": False, "gate_width": 64}, r"gate=False .*gate_width=64"),
        ("universal", {"halt": None, "kv": "mixture"}, r"kv: mixture .*halt=None"),
        ("universal", {"early_exit": "compact", "halt": {"halted_proposals": True}}, "early_exit='compact'"),
        ("universal", {"halt": {"threshold": 1.5}}, r"halt.threshold.*\n.*less_than_equal"),
        ("universal", {"max_dpeth": 3}, r"max_dpeth.*\n.*extra_forbidden"),
    ],
)
def test_impossible_model_settings_raise_an_error(names: str, changes: dict[str, Any], pattern: str) -> None:
    for name in names.split():
        with pytest.raises(ValidationError, match=pattern):
            model_config({"name": name} | changes)
