"""What a spec can set about decoding, under `train`. Loads no torch."""

from pydantic import Field, PositiveInt

from trainables.settings import NonNegative, Settings


class DecodeConfig(Settings):
    """How answers are written token by token. Only tasks of the head `sequence` have such answers."""

    beam_size: int = Field(default=1, ge=1, le=1024)
    """Hypotheses of a written answer that are followed side by side; 1 is greedy decoding. Like the other
    three fields of decoding it changes no weights, so a trained checkpoint can be read again with others."""
    length_penalty: NonNegative = 0.0
    """Answers are compared by log-probability / length^length_penalty, their end counted: more favours longer
    ones. Greedy decoding has nothing to compare."""
    decode_length_max: PositiveInt | None = None
    """Most tokens of a written answer, its end included; null: twice the longest training answer."""
    decode_examples: PositiveInt | None = 256
    """Most validation samples decoded for each measurement, the same for every trial; null
    decodes all. Test splits are decoded in full."""
