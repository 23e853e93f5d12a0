"""Create the section of the page on halting: depth, use of experts, and halting maps."""

from collections.abc import Iterator, Sequence

from orchestrator.report.figures.curve_figures import depth_panels
from orchestrator.report.halting.halting_maps import ArmMaps
from orchestrator.report.halting.map_figures import map_panels
from orchestrator.report.halting.tallies import ExpertUse
from orchestrator.report.halting.tally_figures import binned_panels, expert_panels
from orchestrator.report.results.details import Details
from orchestrator.report.results.types import TextTable
from orchestrator.report.writers.page_parts import PagePart, PageSection, draw_pictures
from search_spaces.wording import amount

DEPTH_TEXT = (
    "Mean depth of each split; whiskers show the 10th to 90th percentile over its examples, as means over "
    "seeds. Arms with constant depth are omitted."
)
BINNED_DEPTH_TEXT = (
    ", inside each split: up to 256 of its examples, the same in every arm with the same data{bins}. "
    "{bands} show the 10th to 90th percentile over the examples of a bin, as means over seeds. Arms with "
    "constant depth are omitted. "
)
LENGTHS_TEXT = (
    "Mean depth by length of the input in tokens"
    + BINNED_DEPTH_TEXT.replace("{bins}", ", in bins of about equal size")
    + "The depth of a looped model is the number of repetitions of its block. Exploratory."
)
OPERATORS_TEXT = (
    "Mean depth by number of operators"
    + BINNED_DEPTH_TEXT.replace("{bins}", "")
    + "In a pair, the sentence with more operators counts. Longer inputs tend to have more operators, so "
    "depth may depend on either. Exploratory."
)
EXPERTS_TEXT = (
    "The first rows show how often each class of words is routed to each expert over all layers, the "
    "following rows show it for each layer, on up to 256 examples of each test split. Rows add up to 1. "
    "Values are of the first finished seed of each arm, because experts have no common order across seeds. "
    "Exploratory."
)
EXPERT_WORDS_TEXT = (
    "The words that chose each expert most often, with their counts over all layers, on the same "
    "examples. Words that are frequent in the data are frequent in many experts. Exploratory."
)
MAPS_TEXT = (
    "Halting maps: one column per word, layers upwards. Executed layers are blue, darker with a larger "
    "open share: over 60%, 25 to 60%, 5 to 25%, less. Blank: the word had halted. The open share is: "
    "{meaning}. Examples were drawn once from {split}, independent of the models, and are the same in "
    "every arm with the same data. Maps are of the first finished seed of each arm that stored any. "
    "Exploratory."
)
NO_MAPS_TEXT = (
    "No map is stored for {arms}: their words do not halt separately (a looped model stops for a whole "
    "input), or their layers were not recorded."
)
OPEN_SHARE_MEANINGS = {
    "survival": "the probability that no layer before gave the word its final state",
    "existence": "the probability that the word has not been composed into another one",
}


def halting_section(details: Details) -> PageSection:
    """Return the section: depth by split, then counts over many examples, then maps arm by arm."""
    depth = PagePart(texts=(DEPTH_TEXT,), panels=draw_pictures(depth_panels(details)))
    parts = [part for part in (depth, *_count_parts(details), *_map_parts(details)) if part.has_content]
    return PageSection("halting", "Halting", parts=tuple(parts))


def _count_parts(details: Details) -> Iterator[PagePart]:
    for title, text, depths, quantity in (
        ("Depth by length", LENGTHS_TEXT, details.lengths, "tokens"),
        ("Depth by number of operators", OPERATORS_TEXT, details.operators, "operators"),
    ):
        has_intervals = any(depth_bin.low is not None for depth in depths for depth_bin in depth.bins)
        bands = "Whiskers are 95% intervals of the mean over seeds, bands" if has_intervals else "Bands"
        panels = draw_pictures(binned_panels(depths, quantity))
        yield PagePart(title=title, texts=(text.format(bands=bands),), panels=panels)
    panels = draw_pictures(expert_panels(details.experts))
    yield PagePart(title="Experts by class of word and by layer", texts=(EXPERTS_TEXT,), panels=panels)
    grids = tuple(_expert_words_table(use) for use in details.experts if use.words)
    yield PagePart(title="Words of experts", texts=(EXPERT_WORDS_TEXT,), grids=grids)


def _expert_words_table(use: ExpertUse) -> TextTable:
    choice_counts = map(sum, zip(*use.uses, strict=True))
    rows = (
        (str(number), str(times), ", ".join(f"{word} ({n})" for word, n in words))
        for number, (times, words) in enumerate(zip(choice_counts, use.words, strict=True), start=1)
    )
    title = f"{use.arm}, {use.mixture}, seed {use.seed}"
    return TextTable(title, ("expert", "chosen", "words that chose it most often"), tuple(rows))


def _map_parts(details: Details) -> Iterator[PagePart]:
    maps = details.maps
    for place, arm_maps in enumerate(maps.arms, start=1):
        texts = (_map_explanation(maps.arms), _without_maps_text(maps.still)) if place == 1 else ()
        yield PagePart(
            title=f"{arm_maps.arm}, seed {arm_maps.seed}",
            texts=tuple(filter(None, (*texts, _omitted_examples_text(arm_maps, maps.max_per_arm)))),
            panels=draw_pictures(map_panels(arm_maps, place, maps.max_per_arm)),
        )
    if not maps.arms and maps.still:
        yield PagePart(facts=(("halting maps", _without_maps_text(maps.still)),))


def _map_explanation(arms: Sequence[ArmMaps]) -> str:
    """Return the explanation of the maps, with the arms to which each meaning applies."""
    arms_by_meaning: dict[str, list[str]] = {}
    for arm_maps in arms:
        arms_by_meaning.setdefault(
            OPEN_SHARE_MEANINGS.get(arm_maps.examples[0].meaning, "unknown"), []
        ).append(arm_maps.arm)
    message = "; ".join(f"in {', '.join(names)}, {meaning}" for meaning, names in arms_by_meaning.items())
    return MAPS_TEXT.format(meaning=message, split=arms[0].examples[0].split)


def _without_maps_text(still: tuple[str, ...]) -> str:
    return NO_MAPS_TEXT.format(arms=", ".join(still)) if still else ""


def _omitted_examples_text(maps: ArmMaps, maximum: int) -> str:
    """Return how many examples are not drawn, as text."""
    num_omitted = max(0, len(maps.examples) - maximum)
    return f"{amount(num_omitted, 'more example')} in report.json, not drawn here." * bool(num_omitted)
