"""AdamW and its schedule: learning rate, warm-up, weight decay.

Source: the settings that Ray Chowdhury and Caragea, "Investigating Recurrent Transformers with Dynamic Halt",
appendix A, state for all their tasks. The warm-up exists only for schedules that have one. Learning rates are
peak values. The schedule `rsqrt` divides the rate by the root of the warm-up, so it needs a custom range.
"""

from search_spaces.dimensions import Choice, Constraint, Dimension, Float, Int, Space, When

_SOURCE = "Investigating Recurrent Transformers with Dynamic Halt, appendix A: all tasks"
_IF_WARMUP = (When("train.schedule", ("warmup", "rsqrt", "linear", "cosine")),)
_LIMITS = (Constraint("train.warmup_steps", "<=", "train.steps"),)

published = Space(
    (
        Dimension("train.lr", Choice((2e-4, 3e-4, 5e-4, 7e-4, 1e-3)), source=_SOURCE),
        Dimension("train.warmup_steps", Choice((50, 175, 312, 1000, 4000, 8000)), _IF_WARMUP, _SOURCE),
        Dimension("train.weight_decay", Choice((0.0, 0.1)), source=_SOURCE),
    ),
    _LIMITS,
)
wide = Space(
    (
        Dimension("train.lr", Float(1e-5, 1e-2, log=True), source="a decade on either side"),
        Dimension("train.warmup_steps", Int(1, 8000, log=True), _IF_WARMUP, "up to the longest published"),
        Dimension("train.weight_decay", Float(0.0, 0.3), source="up to three times the published"),
    ),
    _LIMITS,
)
