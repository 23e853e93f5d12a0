"""Settings of decoding, a part of `train` in a spec; importable without torch."""

from typing import Annotated, Any

from pydantic import Field, PositiveInt

from trainables.field_effects import Affects, TrialFacts, effective_limit
from trainables.settings import NonNegative, Settings

NO_PENALTY = 1e-9
"""Exponent below which length^exponent equals 1 within the digits of a score."""
LENGTH_MARGIN = 2
"""Default limit of an answer, as a multiple of the length of the longest training answer."""


def _beam_size(config: Any, trial: TrialFacts) -> Any:
    """Return the effective beam size: 1 unless the task generates answers longer than an end token."""
    return config.beam_size if trial.head == "sequence" and config.decode_length_max != 1 else 1


def _length_penalty(config: Any, trial: TrialFacts) -> Any:
    """Return the effective length penalty: 0 for greedy decoding, which compares no hypotheses."""
    compared = trial.head == "sequence" and config.beam_size > 1 and config.length_penalty > NO_PENALTY
    return config.length_penalty if compared else 0.0


def _length_max(config: Any, trial: TrialFacts) -> Any:
    if trial.head != "sequence" or trial.answer_length_max is None:
        return None
    length_max = config.decode_length_max
    return LENGTH_MARGIN * trial.answer_length_max if length_max is None else length_max


def _examples(config: Any, trial: TrialFacts) -> Any:
    """Return the limit of decoded validation examples; None if no limit applies or nothing is decoded."""
    if trial.head != "sequence":
        return None
    return effective_limit(
        effective_limit(config.decode_examples, config.valid_examples), trial.valid_examples
    )


class DecodeConfig(Settings):
    """Settings of token-by-token decoding of answers. Only tasks of the head `sequence` have such answers."""

    beam_size: Annotated[int, Affects("writing", _beam_size)] = Field(default=1, ge=1, le=1024)
    """Number of hypotheses per input in beam search; 1 is greedy decoding. Like the other three decoding
    fields it changes no weights, so a trained checkpoint can be re-evaluated with other values."""
    length_penalty: Annotated[NonNegative, Affects("writing", _length_penalty)] = 0.0
    """Answers are ranked by log-probability / length^length_penalty, with the end token counted: larger
    values favour longer answers. Greedy decoding ranks no answers."""
    decode_length_max: Annotated[PositiveInt | None, Affects("writing", _length_max)] = None
    """Maximum number of tokens of a generated answer, its end included; null: twice the longest training
    answer."""
    decode_examples: Annotated[PositiveInt | None, Affects("sampling", _examples)] = 256
    """Maximum number of validation samples decoded for each measurement, equal for all trials; null decodes
    all. Test splits are decoded in full."""
