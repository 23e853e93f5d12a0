"""WMT 2014 English to German: translation of news, read from files.

Bojar et al. 2014, "Findings of the 2014 Workshop on Statistical Machine Translation". Preprocessing is as in
Liu et al. 2020, "Very Deep Transformers for Neural Machine Translation", with one vocabulary for both
languages. Metrics are as in Tan et al., "Sparse Universal Transformer", sec. 4.1.

    <folder>/train.en  train.de   sentences, one per line: tokens of Moses, divided by BPE; every piece of a
                                  token but the last ends with `@@`
             valid.en  valid.de  test.en  test.de
             dict.txt             the pieces of both languages in the order of their ids, one per line, with
                                  their counts: fairseq's dict.en.txt, which is identical to its dict.de.txt

Every sentence ends with `</s>`, as in fairseq, and pieces that the vocabulary lacks become `<unk>`.

Metrics, in points: `bleu` on tokens, compounds split at hyphens, not smoothed; `sacrebleu`, with the
tokenisation and smoothing of sacrebleu, on detokenised text.

Departures: the reference of `sacrebleu` is the detokenised test file instead of the original text, because
detokenisation restores the original only approximately.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import pyarrow as pa
from pydantic import Field

from trainables.data.files import content_digest, source_folder
from trainables.field_effects import AffectsSplits
from trainables.metrics import Metric
from trainables.readers.parallel_text import (
    END,
    PADDING,
    UNKNOWN,
    Rows,
    Vocabulary,
    read_pairs,
    read_words,
    warn_unknown,
)
from trainables.settings import Settings
from trainables.task_protocol import SplitInfo
from trainables.types import TaskShape

VERSION = 1
HEADLINE = "bleu"
MARKS = (PADDING, END, UNKNOWN)
SPLITS = ("train", "valid", "test")
DICTIONARY = "dict.txt"
UNKNOWN_REFERENCE = "<<unk>>"
"""Placeholder in references for an unknown word, so that no translation matches it by chance."""
UNBOUNDED = 10**9
metrics = (
    Metric("bleu", "max", low=0.0, high=100.0, meaning="BLEU of tokens, compounds split, from 0 to 100"),
    Metric("sacrebleu", "max", low=0.0, high=100.0, meaning="BLEU of sentences as written, from 0 to 100"),
)
_HYPHEN = re.compile(r"(\S)-(\S)")


class Config(Settings):
    """The defaults are the published task."""

    name: Literal["wmt14"] = "wmt14"
    folder: str | None = None
    """Folder that holds the sentences and the vocabulary. Needed for training; a spec can be planned without
    files if the vocabulary size is given."""
    vocabulary_size: Annotated[int | None, AffectsSplits()] = Field(default=None, ge=len(MARKS) + 1)
    """Number of ids of pieces, including 3 marks. It must be at least the size of the vocabulary, which is
    the default."""
    pieces_max: int = Field(default=250, ge=1)
    """Maximum number of tokens (pieces of words) of a training sentence. Pairs with a longer or an empty
    sentence are left out, as in fairseq's preparation of these data."""


def shape(config: Config) -> TaskShape:
    """Return a shape for sentences as answers.

    Reads the vocabulary unless its size is given.

    Raises:
        ValueError: The vocabulary cannot be read, or does not fit into the given size.
    """
    size = config.vocabulary_size or len(_vocabulary(config))
    return TaskShape(
        head="sequence",
        vocabulary_size=size,
        num_classes=size,
        pad_id=MARKS.index(PADDING),
        length_max=config.pieces_max + 1,
        end_id=MARKS.index(END),
        answer_length_max=config.pieces_max + 1,
        shared_vocabulary=True,
    )


def label_names(config: Config) -> tuple[str, ...]:
    """Return the pieces of both languages."""
    return _vocabulary(config).entries


def splits(config: Config) -> tuple[SplitInfo, ...]:
    """Return train, valid and test (newstest2014)."""
    return (
        SplitInfo("train", "train", 2, config.pieces_max + 1, None),
        SplitInfo("valid", "valid", 2, UNBOUNDED, None),
        SplitInfo("test", "test", 2, UNBOUNDED, None),
    )


def build(config: Config, split: str) -> pa.Table:
    """Return columns `tokens` and `answer`. Raises `ValueError` for a bad file."""
    files, vocabulary = _files(config), _vocabulary(config)
    if config.vocabulary_size is not None and config.vocabulary_size < len(vocabulary):
        raise ValueError(
            f"vocabulary_size must be at least {len(vocabulary)} to hold {DICTIONARY} and the marks, got "
            f"{config.vocabulary_size}"
        )
    sources, targets = Rows(len(vocabulary)), Rows(len(vocabulary))
    source, target = files[f"{split}.en"], files[f"{split}.de"]
    for line_number, english, german in read_pairs(source, target):
        if split == "train" and not _has_valid_lengths(config, english, german):
            continue
        if not english or not german:
            raise ValueError(
                f"{source if not english else target}, line {line_number}: expected a sentence, "
                "got an empty line"
            )
        sources.append([*vocabulary.ids(english), MARKS.index(END)])
        targets.append(vocabulary.ids(german))
    if not len(sources):
        raise ValueError(
            f"{source} and {target.name} must hold sentences of 1 to {config.pieces_max} pieces, got none"
        )
    tokens, answers = sources.column(), targets.column()
    warn_unknown(source, tokens, MARKS.index(UNKNOWN))
    warn_unknown(target, answers, MARKS.index(UNKNOWN))
    return pa.table({"tokens": tokens, "answer": answers})


def _has_valid_lengths(config: Config, *sides: Sequence[str]) -> bool:
    return all(0 < len(sentence) <= config.pieces_max for sentence in sides)


def require_files(config: Config) -> None:
    """Raise `ValueError` if the files are missing, without reading them."""
    _files(config)


def source_digest(config: Config) -> str:
    """Return a digest of the contents of the files. Raises `ValueError` for missing files."""
    files = _files(config)
    return content_digest(files[DICTIONARY].parent, files)


def decode(tokens: Sequence[int], config: Config) -> str:
    """Return readable text, e.g. `Gut@@ ach : Increased safety for pedestrians </s>`."""
    return " ".join(_vocabulary(config).words(tokens))


def score(
    config: Config, hypotheses: Sequence[Sequence[int]], references: Sequence[Sequence[int]]
) -> Mapping[str, float]:
    """Return `bleu` and `sacrebleu`, from 0 to 100. Ids exclude the end token.

    Without files, as when a spec is planned, numbers replace the pieces.
    """
    # Import late: it takes half a second, which only finished splits need.
    from sacrebleu.metrics.bleu import BLEU
    from sacremoses import MosesDetokenizer

    vocabulary = _pieces(config)
    hypothesis_tokens = [_tokens(vocabulary, row, UNKNOWN) for row in hypotheses]
    reference_tokens = [_tokens(vocabulary, row, UNKNOWN_REFERENCE) for row in references]
    token_bleu = BLEU(tokenize="none", smooth_method="none", force=True)
    text_bleu, detokenize = BLEU(), MosesDetokenizer(lang="de").detokenize
    return {
        "bleu": token_bleu.corpus_score(
            [*map(split_compounds, hypothesis_tokens)], [[*map(split_compounds, reference_tokens)]]
        ).score,
        "sacrebleu": text_bleu.corpus_score(
            [detokenize(text.split()) for text in hypothesis_tokens],
            [[detokenize(text.split()) for text in reference_tokens]],
        ).score,
    }


def split_compounds(text: str) -> str:
    """Return the text with every hyphen inside a word split off as a token, as in fairseq for En-De."""
    return _HYPHEN.sub(r"\1 ##AT##-##AT## \2", text)


def _tokens(vocabulary: Vocabulary, pieces: Sequence[int], unknown: str) -> str:
    """Join the pieces of a sentence to tokens of Moses."""
    words = (unknown if word == UNKNOWN else word for word in vocabulary.words(pieces))
    return (" ".join(words) + " ").replace("@@ ", "").strip()


def _files(config: Config) -> dict[str, Path]:
    """Map file names to paths. Raises `ValueError` for missing files."""
    names = [*(f"{split}.{language}" for split in SPLITS for language in ("en", "de")), DICTIONARY]
    content = f"{', '.join(names)} (sentences in BPE, one per line, and fairseq's joined dictionary)"
    remedy = ", or give vocabulary_size to plan without the files"
    folder = source_folder(config.folder, names, content, remedy)
    return {name: folder / name for name in names}


def _vocabulary(config: Config) -> Vocabulary:
    """Return the pieces of both languages. Raises `ValueError`."""
    return read_words(_files(config)[DICTIONARY], MARKS)


def _pieces(config: Config) -> Vocabulary:
    """Return the vocabulary; if only its size is given, numbers replace the pieces."""
    size, folder = config.vocabulary_size, config.folder
    if size is None or (folder is not None and (Path(folder) / DICTIONARY).is_file()):
        return _vocabulary(config)
    return Vocabulary(MARKS, map(str, range(size - len(MARKS))))
