"""What is in the data that a sweep reads, as far as they are there; nothing is built."""

from collections import defaultdict
from contextlib import suppress

from orchestrator.drivers.datasets import needed
from orchestrator.drivers.launch_folder import DEFAULT_WORKLOAD, Setup
from orchestrator.plan.types import Plan


def data_digests(plan: Plan, setup: Setup) -> dict[str, str]:
    """Digests of the splits that the arms of `plan` read, by task and split; empty for own training code."""
    if setup.workload != DEFAULT_WORKLOAD:
        return {}
    from trainables.data.inventory import look_at
    from trainables.data.store import split_path
    from trainables.task_catalog import task_name

    found: dict[str, set[str]] = defaultdict(set)
    confirmed = plan.confirm.splits if plan.confirm is not None else ()
    with suppress(ValueError, LookupError):  # a task of others that is not there any more
        for config, infos in needed((arm.settings["task"] for arm in plan.arms), confirmed):
            for info in infos:
                if info.streamed or not (path := split_path(config, info.name, setup.data_dir)).exists():
                    continue
                seen = look_at(path)
                assert seen is not None, "data are looked at themselves"
                found[f"{task_name(config)}/{info.name}"].add(seen.content_hash or seen.verdict)
    return {name: ", ".join(sorted(digests)) for name, digests in found.items()}
