"""Checks that compiled steps of a model give the same results."""

from typing import Final

from trainables.assembly import model_config, uncompiled
from trainables.regions.compiling import Compiler
from trainables.testing.arms import BASE, EXIT, Raw, having
from trainables.testing.cases import ModelCases, batch, check_same, trained
from trainables.testing.contract import check, check_close
from trainables.testing.exits import modes_of

VARIED: Final = ((5, 1, 9, 3, 7), (6,), (3, 3), (8, 2, 2, 2, 5, 1))
"""Lengths: ragged and even, of one row and of many. The first are compiled for, the others are not."""
DROPPED: Final = {"dropout": 0.2, "attention_dropout": 0.1}


class CompileContract(ModelCases):
    """For the small version of a model that says `COMPILED`; not through inductor, which takes a minute."""

    def every_compiled(self) -> dict[str, Raw]:
        """The small version, if its layers can be compiled."""
        raw = self.every_arm()[BASE]
        return {} if uncompiled(model_config(raw)) is not None else {BASE: raw}

    def test_compiled_it_is_what_it_is(self, compiled: Raw) -> None:
        """Losses, costs, states and gradients, with dropout; later batches compile nothing anew."""
        config = model_config(compiled)
        # Where nobody looks who has halted, layers are those of another mode.
        modes = [mode for mode in modes_of(config) if mode != "none"] or [""]
        # In every chunk that is the recurrence of models without chunks.
        for place, mode in enumerate(modes[:1] if hasattr(config, "chunk") else modes):
            # Graphs of gradients are made of graphs of layers in every mode alike.
            compiler = Compiler("eager" if place else "aot_eager")
            model = self.built(having(compiled, **({EXIT: mode} if mode else {}), **DROPPED))
            for step, lengths in enumerate(VARIED):
                given, before = batch(lengths), compiler.graphs
                whole, gradients = trained(model, given, step)
                with compiler.running():
                    output, others = trained(model, given, step)
                what = f"compiled, a step on rows of {lengths} {mode} must be the same"
                check_close(output.loss.detach(), whole.loss.detach(), f"{what}: loss")
                check_same(output.encoded, whole.encoded, what)
                check(others.keys() == gradients.keys(), f"{what}: parameters with a gradient")
                for name, gradient in gradients.items():
                    check_close(others[name], gradient, f"{what}: gradient of {name}")
                new = compiler.graphs - before
                check(not (step and new), f"sizes must compile nothing anew, got {new} graphs for {lengths}")
            check(compiler.graphs > 0, f"layers must be compiled, got no graph {mode}")
