"""The process that asks a cluster on behalf of `survey`: what Ray prints stays with it.

Reads one line of JSON, `{"address", "wanted", "needs"}`, and writes one, `{"nodes": [...]}` or
`{"fault": "..."}`.
"""

import json
import logging
import sys
import time
from typing import Any

from orchestrator.execution.ray.node_check import NodeAnswer, NodeRequirements
from orchestrator.execution.ray.ray_settings import ray_environment
from orchestrator.execution.ray.sent_code import runtime_environment
from orchestrator.execution.slots import slots
from orchestrator.spec.section import Resources

ANSWERS_S = 120.0
"""How long a node may take to start a worker and look around."""


def main() -> None:
    """One survey."""
    request = json.loads(sys.stdin.readline())
    needs = None if request["needs"] is None else NodeRequirements.from_json(request["needs"])
    with ray_environment(private=False):
        try:
            nodes = _nodes(request["address"], Resources(**request["wanted"]), needs)
            found: dict[str, Any] = {"nodes": nodes}
        except Exception as error:  # Ray has no class of its own for what goes wrong here
            found = {"fault": f"{error}"}
    sys.stdout.write(f"\n{json.dumps(found)}\n")


def _nodes(address: str, wanted: Resources, needs: NodeRequirements | None) -> list[dict[str, Any]]:
    import ray
    from ray.exceptions import RayError

    from orchestrator.execution.ray import ray_nodes

    with runtime_environment({} if needs is None else needs.sent) as sent:
        ray.init(address=address, runtime_env=sent, log_to_driver=False, logging_level=logging.CRITICAL)
    try:
        nodes = ray_nodes.alive()
        asked = {}
        if needs is not None:
            # A node that runs no trials, as a small head, is not made to load what they need.
            able = [node["NodeID"] for node in nodes if slots([node["Resources"]], wanted)]
            asked = {node_id: ray_nodes.ask(node_id, needs) for node_id in able}
        until, found = time.monotonic() + ANSWERS_S, []
        for node in nodes:
            heard = NodeAnswer()
            if reference := asked.get(node["NodeID"]):
                try:
                    heard = ray_nodes.said(reference, max(0.0, until - time.monotonic()))
                except RayError as error:
                    heard = NodeAnswer((f"it gives no answer ({type(error).__name__})",))
            found.append(
                {
                    "name": ray_nodes.named(node),
                    "resources": node["Resources"],
                    "labels": node["Labels"],
                    "lacks": heard.lacks,
                    "unshared": heard.unshared,
                }
            )
        return found
    finally:
        ray.shutdown()
