"""Which trainings can take their steps as one, by what is set under `train`."""

from trainables.training.config import TrainConfig

REMEDY = "drop it, or resources.pack"


def apart(config: TrainConfig) -> str | None:
    """Why several trainings of `config`, of a seed each, take their steps apart, as `must ..., got ...`; None
    where they need not.

    `trainables.assembly.unstacked` says the same of models.
    """
    wanted = (
        ("precision", config.precision, "fp32", "autocast casts the weights of one model at a time"),
        ("accumulate", config.accumulate, 1, "batches are run as a whole"),
        ("ranks", config.ranks, 1, "one process has all of them"),
        ("compile", config.compile, False, "layers are compiled for one model"),
        ("checkpoint_activations", config.checkpoint_activations, False, "layers are run once"),
        ("halve_after", config.halve_after, None, "all have the same learning rate"),
        ("batch_tokens", config.batch_tokens, None, "batches must have as many rows as each other"),
    )
    for field, given, needed, why in wanted:
        if given != needed:
            must = "be left out" if needed is None else f"be {needed}"
            return f"train.{field} must {must} where seeds are trained as one, got {given}: {why}; {REMEDY}"
    return None
