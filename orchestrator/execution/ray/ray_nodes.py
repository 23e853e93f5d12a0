"""The nodes of the connected cluster: each is asked once, where it is, whether it can run trials."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from orchestrator.errors import ExecutorError
from orchestrator.execution.ray.node_check import NodeAnswer, NodeRequirements
from orchestrator.execution.slots import slots
from orchestrator.files.json_values import from_json_values, to_json_values
from orchestrator.files.redact import redact
from orchestrator.spec.section import Resources

TRIES = 3
"""How often a node is asked that gives no answer."""


def alive() -> list[Mapping[str, Any]]:
    """Ray's descriptions of the nodes that live."""
    return [node for node in ray.nodes() if node["Alive"]]  # type: ignore[no-untyped-call]


def named(node: Mapping[str, Any]) -> str:
    """A node as people know it."""
    host, address = str(node["NodeManagerHostname"]), str(node["NodeManagerAddress"])
    return f"{host} ({address})" if host != address else host


def ask(node_id: str, needs: NodeRequirements) -> Any:
    """A reference to what the node says, as JSON of `NodeAnswer`."""
    placed = NodeAffinitySchedulingStrategy(node_id, soft=False)
    return _answer.options(scheduling_strategy=placed).remote(needs.to_json())


def said(reference: Any, timeout_s: float | None = None) -> NodeAnswer:
    """What a node that was asked says. Raises RayError if it says nothing."""
    try:
        answer = json.loads(ray.get(reference, timeout=timeout_s))
    except ray.exceptions.RayTaskError as error:
        why = redact(str(error).strip().splitlines()[-1])
        return NodeAnswer((f"haltsweep cannot be used there as installed ({why})",))
    return from_json_values(NodeAnswer, answer)


@ray.remote(num_cpus=0, max_retries=0)
def _answer(text: str) -> str:
    from orchestrator.execution.ray.node_check import answer

    return json.dumps(to_json_values(answer(NodeRequirements.from_json(text))))


@dataclass(slots=True)
class Nodes:
    """Which nodes of a cluster take trials; nodes come and go, and who comes is asked before it gets one."""

    needs: NodeRequirements
    wanted: Resources
    tell: Callable[[str], None]
    _asked: dict[str, Any] = field(default_factory=dict)
    _tries: dict[str, int] = field(default_factory=dict)
    _answers: dict[str, NodeAnswer] = field(default_factory=dict)
    _alive: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def kept_out(self) -> tuple[str, ...]:
        """Ids of living nodes that are to get no trial, at least not yet."""
        return tuple(sorted(key for key in self._alive if not self._fit(key)))

    @property
    def asking(self) -> bool:
        """Whether a node has not answered yet."""
        return bool(self._asked)

    def look(self) -> int:
        """Ask who is new, hear who has answered; how many trials fit on the nodes that can run them.

        Raises ExecutorError if there are nodes and every one said that it cannot.
        """
        self._alive = {node["NodeID"]: node for node in alive() if slots([node["Resources"]], self.wanted)}
        for key in [key for key in self._asked if key not in self._alive]:
            del self._asked[key]
        for key in self._alive:
            if key not in self._answers and key not in self._asked:
                self._asked[key] = ask(key, self.needs)
        self._hear()
        if self._alive and not self._asked and not any(map(self._fit, self._alive)):
            why = "; ".join(_why(self._alive[key], self._answers[key]) for key in self._alive)
            raise ExecutorError(f"a node of the cluster must be able to run trials, and none can: {why}")
        return slots((self._alive[key]["Resources"] for key in self._alive if self._fit(key)), self.wanted)

    def _fit(self, key: str) -> bool:
        return key in self._answers and not self._answers[key].lacks

    def _hear(self) -> None:
        if not self._asked:
            return
        keys = {reference: key for key, reference in self._asked.items()}
        ready, _ = ray.wait(list(keys), num_returns=len(keys), timeout=0)
        for reference in ready:
            key = keys[reference]
            del self._asked[key]
            try:
                self._answers[key] = said(reference)
            except RayError as error:
                self._tries[key] = self._tries.get(key, 0) + 1
                if self._tries[key] < TRIES:
                    continue  # it is asked again, if it still lives
                self._answers[key] = NodeAnswer((f"it gives no answer ({type(error).__name__})",))
            for line in _remarks(self._alive[key], self._answers[key]):
                self.tell(line)


def _remarks(node: Mapping[str, Any], heard: NodeAnswer) -> Iterable[str]:
    """What people must know of a node."""
    if heard.lacks:
        yield f"node {_why(node, heard)}; it takes no trials"
    elif heard.differs:
        yield f"node {named(node)} has {', '.join(heard.differs)}: results may differ in the last digits"


def _why(node: Mapping[str, Any], heard: NodeAnswer) -> str:
    return f"{named(node)}: {'; '.join(heard.lacks)}"
