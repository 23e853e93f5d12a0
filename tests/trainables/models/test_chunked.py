"""Settings of chunked models."""

from trainables.models import gutlb, tlb


def test_defaults_equal_the_published_models_on_listops() -> None:
    for config in (tlb.Config(), gutlb.Config()):
        assert (config.width, config.heads) == (512, 8)
        assert (config.size_of_head, config.size_of_feedforward) == (64, 1024)
        assert (config.chunk.by, config.chunk.size, config.memory.slots) == ("size", 20, 20)
        assert (config.memory.update_layers, config.memory.start) == (1, "zeros")
        assert not config.memory.slot_positions
        assert (config.boundaries, config.readout, config.causal) == (False, "slots", False)
    assert tlb.Config().layers == 2
    assert (gutlb.Config().max_layers, gutlb.Config().size_of_gate) == (5, 1024)
    assert gutlb.Config().halt is not None
