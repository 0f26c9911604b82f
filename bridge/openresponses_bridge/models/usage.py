"""`UsageTracker`: what requests were expected to cost, and what they did cost.

A client shows how full its context is, and condenses a conversation before it is too long. Both need an
estimate before the answer, and the true number after it. `openresponses_bridge.models.tokens` corrects
estimates by counts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from openresponses_bridge.protocol.usage import Usage

MAX_AGENTS: Final = 100
_NOTHING: Final = Usage.of(0, 0)


class AgentUsage(Struct, frozen=True):
    """One agent's latest request and what all of its requests spent. All numbers are tokens.

    `usage` is None until the request is complete, and after a failure without usage. `max_input_tokens` is 0
    if it is not known. `requests` is the number of requests that were sent, `failed` the number of those that
    failed.
    """

    agent_id: str
    model_id: str
    estimated_input_tokens: int
    max_input_tokens: int
    requests: int
    usage: Usage | None
    spent: Usage
    failed: int = 0

    @property
    def input_tokens(self) -> int:
        """The input of the latest request: counted if it is complete, else estimated."""
        return self.estimated_input_tokens if self.usage is None else self.usage.input_tokens


class UsageTracker:
    """Tracks the usage of agents by id (a conversation, a run, a sub-agent). At most `max_agents` are kept;
    the least recently used one is evicted, and its tokens stay in the total.

    `on_change` is called with each agent's new state.
    """

    def __init__(
        self, on_change: Callable[[AgentUsage], None] | None = None, max_agents: int = MAX_AGENTS
    ) -> None:
        self.total = _NOTHING
        self._on_change = on_change
        self._limit = max_agents
        self._agents: OrderedDict[str, AgentUsage] = OrderedDict()

    def __iter__(self) -> Iterator[AgentUsage]:
        """Iterate over the agents, the one that was used last at the end."""
        return iter(list(self._agents.values()))

    def get(self, agent_id: str) -> AgentUsage | None:
        """Return an agent's state."""
        return self._agents.get(agent_id)

    def start_request(
        self, agent_id: str, estimated_input_tokens: int, max_input_tokens: int, model_id: str
    ) -> AgentUsage:
        """Record that a request is sent."""
        before = self._agents.get(agent_id)
        requests, spent, failed = (
            (0, _NOTHING, 0) if before is None else (before.requests, before.spent, before.failed)
        )
        return self._keep(
            AgentUsage(
                agent_id,
                model_id,
                estimated_input_tokens,
                max_input_tokens,
                requests + 1,
                None,
                spent,
                failed,
            )
        )

    def complete_request(self, agent_id: str, usage: Usage | None, model_id: str) -> AgentUsage:
        """Record that a request was answered. One that was not announced counts as well; without usage the
        estimate is kept."""
        return self._end(agent_id, usage, model_id, failed=0)

    def fail_request(self, agent_id: str, model_id: str, usage: Usage | None = None) -> AgentUsage:
        """Record that a request failed; `usage` is what it spent before that."""
        return self._end(agent_id, usage, model_id, failed=1)

    def _end(self, agent_id: str, usage: Usage | None, model_id: str, failed: int) -> AgentUsage:
        agent = self._agents.get(agent_id) or self.start_request(agent_id, 0, 0, model_id)
        failed += agent.failed
        if usage is None:
            return self._keep(replace(agent, failed=failed))
        self.total = self.total.plus(usage)
        spent = agent.spent.plus(usage)
        return self._keep(replace(agent, model_id=model_id, usage=usage, spent=spent, failed=failed))

    def _keep(self, agent: AgentUsage) -> AgentUsage:
        is_known = agent.agent_id in self._agents
        self._agents[agent.agent_id] = agent
        if is_known:
            self._agents.move_to_end(agent.agent_id)
        elif len(self._agents) > self._limit:
            self._agents.popitem(last=False)
        if self._on_change is not None:
            self._on_change(agent)
        return agent
