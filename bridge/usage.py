"""`UsageTracker`: what requests were expected to cost, what they did cost, and what that says of the
next estimate.

A client shows how full its context is, and condenses a conversation before it is too long. Both need a
number before the answer comes, and the true one after.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

from msgspec import Struct
from msgspec.structs import replace

from bridge.protocol.usage import Usage

MAX_AGENTS = 100
_WEIGHT = 0.3
"""How much the newest request counts in the correction of estimates."""
_BOUNDS = (0.25, 4.0)


class AgentUsage(Struct, frozen=True):
    """One agent's latest request and what all of its requests spent. All numbers are tokens.

    `usage` is None until the request is complete, and stays so when it failed. `max_input_tokens` is 0
    when it is not known.
    """

    agent_id: str
    model_id: str
    estimated_input_tokens: int
    max_input_tokens: int
    requests: int
    usage: Usage | None
    spent: Usage

    @property
    def input_tokens(self) -> int:
        """The input of the latest request: counted if it is complete, else estimated."""
        return self.estimated_input_tokens if self.usage is None else self.usage.input_tokens

    @property
    def context_share(self) -> float:
        """How full the model's context is, 0.0 to 1.0 and beyond; 0.0 when its size is not known."""
        return self.input_tokens / self.max_input_tokens if self.max_input_tokens else 0.0


class UsageTracker:
    """Tracks agents by their id (a conversation, a run, a sub-agent). At most `max_agents` are kept; the
    one that was used longest ago goes first, its tokens stay in the total.

    `on_change` is called with each agent's new state, to show it.
    """

    def __init__(
        self, on_change: Callable[[AgentUsage], None] | None = None, max_agents: int = MAX_AGENTS
    ) -> None:
        self.total = Usage.of(0, 0)
        self._on_change = on_change
        self._limit = max_agents
        self._agents: OrderedDict[str, AgentUsage] = OrderedDict()
        self._corrections: dict[str, float] = {}

    def __iter__(self) -> Iterator[AgentUsage]:
        """The agents, the one that was used last at the end."""
        return iter(list(self._agents.values()))

    def get(self, agent_id: str) -> AgentUsage | None:
        """An agent's state."""
        return self._agents.get(agent_id)

    def start_request(
        self, agent_id: str, estimated_input_tokens: int, max_input_tokens: int, model_id: str
    ) -> AgentUsage:
        """A request leaves."""
        before = self._agents.get(agent_id)
        requests, spent = (0, Usage.of(0, 0)) if before is None else (before.requests, before.spent)
        return self._keep(
            AgentUsage(
                agent_id, model_id, estimated_input_tokens, max_input_tokens, requests + 1, None, spent
            )
        )

    def complete_request(self, agent_id: str, usage: Usage | None, model_id: str) -> AgentUsage:
        """A request was answered. One that was not announced counts as well; without usage (a failure, a
        server that does not count) the estimate stays."""
        agent = self._agents.get(agent_id) or self.start_request(agent_id, 0, 0, model_id)
        if usage is None:
            return self._keep(agent)
        self.total = _sum(self.total, usage)
        self._learn(model_id, agent.estimated_input_tokens, usage.input_tokens)
        spent = _sum(agent.spent, usage)
        return self._keep(replace(agent, model_id=model_id, usage=usage, spent=spent))

    def corrected(self, estimated_tokens: int, model_id: str) -> int:
        """An estimate, put right by what earlier ones for this model turned out to be."""
        return round(estimated_tokens * self._corrections.get(model_id, 1.0))

    def _learn(self, model_id: str, estimated: int, counted: int) -> None:
        if estimated <= 0 or counted <= 0:
            return
        ratio = min(max(counted / estimated, _BOUNDS[0]), _BOUNDS[1])
        before = self._corrections.get(model_id)
        self._corrections[model_id] = ratio if before is None else before + _WEIGHT * (ratio - before)

    def _keep(self, agent: AgentUsage) -> AgentUsage:
        self._agents[agent.agent_id] = agent
        self._agents.move_to_end(agent.agent_id)
        while len(self._agents) > self._limit:
            self._agents.popitem(last=False)
        if self._on_change is not None:
            self._on_change(agent)
        return agent


def _sum(first: Usage, second: Usage) -> Usage:
    return Usage.of(
        first.input_tokens + second.input_tokens,
        first.output_tokens + second.output_tokens,
        cached_tokens=first.input_tokens_details.cached_tokens + second.input_tokens_details.cached_tokens,
        reasoning_tokens=first.output_tokens_details.reasoning_tokens
        + second.output_tokens_details.reasoning_tokens,
        total_tokens=first.total_tokens + second.total_tokens,
    )
