"""Check each node of the connected cluster once for whether it can run trials."""

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from orchestrator.errors import ExecutorError, InputError
from orchestrator.execution.ray.node_check import NodeReport, NodeRequirements
from orchestrator.execution.slots import count_slots, require_room
from orchestrator.files.json_values import from_json_values, to_json_values
from orchestrator.files.redact import redact
from orchestrator.spec.section import Resources

MAX_TRIES = 3
"""Maximum number of checks of a node that fails to answer."""
ANSWERS_S, POLL_S = 120.0, 0.1
"""Seconds that nodes have to answer before a launch, and seconds between two polls for answers."""
NODE_GROUP_LABEL = "ray.io/node-group"
"""Label of nodes of a cluster with an autoscaler."""


def living_nodes() -> list[Mapping[str, Any]]:
    """Return Ray's descriptions of the living nodes."""
    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


@ray.remote(num_cpus=0, max_retries=0)
def _check_this_node(needs: str) -> str:
    from orchestrator.execution.ray.node_check import check_node

    return json.dumps(to_json_values(check_node(NodeRequirements.from_json(needs))))


@dataclass(slots=True)
class Nodes:
    """Nodes of a cluster; each is checked before it receives a trial."""

    needs: NodeRequirements
    resources: Resources
    warn: Callable[[str], None] = lambda _: None
    """Called with warnings for the user."""
    _pending_checks: dict[str, Any] = field(default_factory=dict)
    _tries: dict[str, int] = field(default_factory=dict)
    _reports: dict[str, NodeReport] = field(default_factory=dict)
    _living: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def excluded_nodes(self) -> tuple[str, ...]:
        """Ids of living nodes that are not, or not yet, allowed to run trials."""
        return tuple(sorted(key for key in self._living if not self._is_fit(key)))

    @property
    def is_checking(self) -> bool:
        """Whether the check of a node is still running."""
        return bool(self._pending_checks)

    def count_free_slots(self) -> int:
        """Start checks of new nodes, read results, and return how many trials fit on the allowed nodes.

        Raises:
            ExecutorError: The cluster has nodes, and every check found that its node cannot run trials.
        """
        self._update()
        if self._living and not self._pending_checks and not any(map(self._is_fit, self._living)):
            raise ExecutorError(self._unfit_nodes_message())
        fit = (self._living[key]["Resources"] for key in self._living if self._is_fit(key))
        return count_slots(fit, self.resources)

    def require_fit(self) -> None:
        """Check the cluster before a launch. A cluster with an autoscaler may have no room yet.

        Raises:
            InputError: No trial fits on a node, no node can run trials, or nodes do not share the folder of
                sweeps.
        """
        all_nodes = living_nodes()
        if not any(NODE_GROUP_LABEL in node["Labels"] for node in all_nodes):
            require_room([node["Resources"] for node in all_nodes], self.resources)
        deadline = time.monotonic() + ANSWERS_S
        self._update()
        while self._pending_checks and time.monotonic() < deadline:
            time.sleep(POLL_S)
            self._update()
        silent_report = NodeReport((f"it has not answered for {ANSWERS_S:.0f} s",))
        self._reports |= dict.fromkeys(self._pending_checks, silent_report)
        nodes_without_folder = [key for key in self._living if self._reports[key].lacks_shared_folder]
        if nodes_without_folder:
            raise InputError(
                "all nodes must share the folder of sweeps, which contains the checkpoints, but "
                f"{len(nodes_without_folder)} of {len(self._living)} do not: "
                f"{self._unmet_requirements(nodes_without_folder)}. Without it, a trial that moves to "
                "another node restarts, and posthoc trials lack their checkpoints: give --checkpoints "
                "s3://bucket/folder or another store, or a --runs that is mounted everywhere"
            )
        if self._living and not any(map(self._is_fit, self._living)):
            raise InputError(self._unfit_nodes_message())

    def _is_fit(self, key: str) -> bool:
        return key in self._reports and not self._reports[key].problems

    def _update(self) -> None:
        # A node without room for a trial, such as a small head node, is not checked.
        fitting_nodes = (node for node in living_nodes() if count_slots([node["Resources"]], self.resources))
        self._living = {node["NodeID"]: node for node in fitting_nodes}
        self._pending_checks = {
            key: request for key, request in self._pending_checks.items() if key in self._living
        }
        for key in self._living.keys() - self._reports.keys() - self._pending_checks.keys():
            self._start_check(key)
        keys = {reference: key for key, reference in self._pending_checks.items()}
        ready, _ = ray.wait(list(keys), num_returns=len(keys), timeout=0) if keys else ([], [])
        for reference in ready:
            self._read_report(keys[reference], self._pending_checks.pop(keys[reference]))

    def _start_check(self, key: str) -> None:
        on_node = _check_this_node.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(key, soft=False)
        )
        self._pending_checks[key] = on_node.remote(self.needs.to_json())

    def _read_report(self, key: str, reference: Any) -> None:
        try:
            self._reports[key] = from_json_values(NodeReport, json.loads(ray.get(reference)))
        except (ray.exceptions.RayTaskError, ValueError) as error:  # ValueError: another version of haltsweep
            reason = redact(str(error).strip().splitlines()[-1])
            self._reports[key] = NodeReport((f"haltsweep cannot run there as installed ({reason})",))
        except RayError as error:
            self._tries[key] = self._tries.get(key, 0) + 1
            if self._tries[key] < MAX_TRIES:
                self._start_check(key)
                return
            self._reports[key] = NodeReport((f"it gives no answer ({type(error).__name__})",))
        if self._reports[key].problems:
            self.warn(f"node {self._unmet_requirements([key])}; it takes no trials")
        elif differences := self._reports[key].differences:
            node_name = _node_name(self._living[key])
            self.warn(f"node {node_name} has {', '.join(differences)}: results may differ in the last digits")

    def _unfit_nodes_message(self) -> str:
        reasons = self._unmet_requirements(self._living)
        return f"a node of the cluster must be able to run trials, and none can: {reasons}"

    def _unmet_requirements(self, keys: Iterable[str]) -> str:
        """Return the names of nodes with the requirements that they do not meet."""
        reasons = ((_node_name(self._living[key]), "; ".join(self._reports[key].problems)) for key in keys)
        return "; ".join(f"{name}: {problems}" for name, problems in reasons)


def _node_name(node: Mapping[str, Any]) -> str:
    host, address = str(node["NodeManagerHostname"]), str(node["NodeManagerAddress"])
    return f"{host} ({address})" if host != address else host
