"""Report extensions of a sweep, and mark claims that rest on them as exploratory.

If more seeds are added after confirm results were observed, or another arm against a reference with known
values, the choice depends on chance as well as on effects. With k looks at level a, some claim is wrong with
probability at most k a (Bonferroni over the looks), not a. Verdicts that rest on such additions are therefore
exploratory. Seeds in rounds with `stop: decided` are corrected for their looks, and cannot be extended once
they have begun. Seeds added before any confirm trial of arm and reference has ended count as planned from the
start.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from orchestrator.plan.types import Extension, Plan
from orchestrator.report.results.seed_results import Pairs
from search_spaces.wording import amount

REPEATS_CHANGE = "search.repeats:"
"""Beginning of the line that describes added repeats among the changes of a spec."""
EXPLORATORY_PREFIX = "Claims marked exploratory"
EXPLORATORY_SENTENCE = EXPLORATORY_PREFIX + (
    " rest on additions after results were observed. With {times} at level {level:g}, the probability of "
    "a wrong claim about some arm is at most {most:g}."
)


def exploratory_reason(plan: Plan, pairs: Pairs) -> str:
    """Return why claims about arms are exploratory, as text after a comma; empty for confirmatory claims.

    Args:
        plan: Plan with all of its extensions.
        pairs: An arm and its reference, one pair for each context of the claim.
    """
    for arm, reference in pairs:
        if reason := _exploratory_reason(plan, arm, reference):
            return reason
    for extension in plan.extended if len(pairs) > 1 else ():
        num_seen = max(extension.seen.get(name, 0) for pair in pairs for name in pair)
        if num_seen and any(arm not in extension.arms for arm, _ in pairs):
            return f", exploratory: contexts added after {amount(num_seen, 'seed')} had been observed"
    return ""


def _exploratory_reason(plan: Plan, arm: str, reference: str) -> str:
    # Arms are never removed, so the last extension without the arm is followed by the one that added it.
    extensions_without_arm = [extension for extension in plan.extended if arm not in extension.arms]
    if extensions_without_arm and (num_seen := extensions_without_arm[-1].seen.get(reference)):
        return f", exploratory: added after {amount(num_seen, 'seed')} of {reference} had been observed"
    for number, extension in enumerate(plan.extended):
        num_seen = max(extension.seen.get(arm, 0), extension.seen.get(reference, 0))
        if num_seen and len(_seeds_after(plan, number)) > len(extension.seeds):
            are_repeats_added = any(
                change_text.startswith(REPEATS_CHANGE) for change_text in extension.changes
            )
            noun, unit_suffix = ("repeats", " seeds") if are_repeats_added else ("seeds", "")
            return f", exploratory: {noun} added after {num_seen}{unit_suffix} had been observed"
    return ""


def extension_sentences(plan: Plan) -> Iterator[str]:
    """Yield one sentence per extension, then one on the consequences for claims."""
    for extension in plan.extended:
        time_text = f"{datetime.fromtimestamp(extension.at, UTC):%Y-%m-%d %H:%M} UTC"
        changes = "; ".join(extension.changes)
        yield f"Extended on {time_text} by `{extension.by}`, {_seen_results_text(extension)}: {changes}."
    num_looks = 1 + sum(bool(extension.seen) for extension in plan.extended)
    pooled = plan.pools.values() if plan.answer is not None and plan.answer.pooled else ()
    claimed_arms = [*((arm,) for arm in plan.arms if arm.reference), *pooled]
    claims = [[(arm.name, arm.reference) for arm in arms] for arms in claimed_arms]
    if plan.answer is not None and any(exploratory_reason(plan, pairs) for pairs in claims):
        level = plan.answer.level
        yield EXPLORATORY_SENTENCE.format(
            times=amount(num_looks, "look"), level=level, most=min(1.0, num_looks * level)
        )


def has_exploratory_claims(sentences: Iterable[str]) -> bool:
    """Return whether `sentences` state that a claim rests on an addition after results were observed."""
    return any(sentence.startswith(EXPLORATORY_PREFIX) for sentence in sentences)


def _seen_results_text(extension: Extension) -> str:
    if not extension.seen:
        return "before any confirm trial had ended"
    by_arm = ", ".join(f"{count} of {arm}" for arm, count in extension.seen.items())
    return f"after confirm seeds had ended ({by_arm})"


def _seeds_after(plan: Plan, number: int) -> tuple[int, ...]:
    """Return the confirm seeds after the extension with index `number`."""
    if number + 1 < len(plan.extended):
        return plan.extended[number + 1].seeds
    return plan.confirm.seeds if plan.confirm is not None else ()
