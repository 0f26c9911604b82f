"""A server over one strict upstream of each kind, and the turns of a session that uses all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from openresponses_server.settings import AwsSettings, Settings, UpstreamSettings
from tests.support.serving import serving
from tests.support.strict_converse import REGION, StrictBedrock
from tests.support.strict_upstreams import (
    PROVIDERS,
    Asked,
    Gemini,
    GeminiChat,
    Rule,
    Said,
    StrictUpstream,
)
from tests.support.upstream import ScriptedUpstream

MODELS = {
    "qwen": "qwen3-max",
    "openai": "gpt-5.5",
    "anthropic": "claude-opus-4-6",
    "gemini": "gemini-3-pro-preview",
    "gemini-chat": "gemini-3-flash-preview",
    "interactions": "gemini-3.5-pro",
    "mistral": "mistral-large-latest",
    "bedrock": "eu.anthropic.claude-sonnet-4-5-20250929-v1:0",
}
"""A model of each provider, by the names of the profiles, and of the other dialect of Gemini's."""
_TWICE = [name for name in MODELS for _ in range(2)]
_AGAIN = ("openai", "anthropic", "interactions", "gemini", "gemini-chat", "bedrock", "qwen", "mistral")
ORDER = (*_TWICE, *_AGAIN)
"""The upstreams of the turns, in order: each has two turns in a row, so that it reads what it made itself,
and a third one after all of them have had two."""


class Strict(NamedTuple):
    """The server's address, and its upstreams by profile."""

    base: str
    upstreams: dict[str, StrictUpstream]

    @property
    def refused(self) -> list[tuple[str, str]]:
        """All refusals of the upstreams."""
        return [(name, each) for name, strict in self.upstreams.items() for each in strict.refused]

    def all_answered(self) -> None:
        """Assert that nothing was refused and that each upstream had its own turns."""
        assert self.refused == [], self.refused
        for name in ("gemini", "gemini-chat"):
            provider = self.upstreams[name].provider
            assert isinstance(provider, Gemini | GeminiChat)
            assert provider.lost == []
        turns = {name: {turn for turn in each.answered if turn} for name, each in self.upstreams.items()}
        own = {
            name: {at for at, upstream in enumerate(ORDER, 1) if upstream == name} for name in self.upstreams
        }
        assert turns == own


@contextmanager
def strict_upstreams(rule: Rule) -> Iterator[tuple[dict[str, StrictUpstream], dict[str, ScriptedUpstream]]]:
    """Yield one upstream of each provider, by profile, and the servers behind them."""
    with ExitStack() as running:
        scripted = {name: running.enter_context(ScriptedUpstream()) for name in MODELS}
        bedrock = StrictBedrock(rule, lambda: scripted["bedrock"].url)
        bedrock.bearer = ""
        strict = {name: StrictUpstream(provider(), rule) for name, provider in PROVIDERS.items()}
        for name, each in strict.items():
            scripted[name].answer = each
        scripted["bedrock"].answer = bedrock
        yield {**strict, "bedrock": bedrock.strict}, scripted


def address_of(name: str, upstream: ScriptedUpstream) -> str:
    """The address of the upstream with this profile: Bedrock's paths have no version."""
    return upstream.url.removesuffix("/v1") if name == "bedrock" else upstream.url


def profile_of(name: str) -> dict[str, Any]:
    """The settings of an upstream that select its profile."""
    if name == "interactions":
        return {"name": name, "profile": "gemini", "dialect": name}
    return {"profile": name}


@contextmanager
def strict_server(rule: Rule, **more: Any) -> Iterator[Strict]:
    """The server, with each provider's profile unchanged except for the address."""
    with strict_upstreams(rule) as (strict, scripted):
        upstreams = [
            UpstreamSettings(
                **profile_of(name),
                url=address_of(name, each),
                models=[MODELS[name]],
                api_key="none",
            )
            for name, each in scripted.items()
        ]
        with serving(Settings(upstreams=upstreams, **more)) as base:
            yield Strict(base, strict)


@contextmanager
def strict_bedrock(rule: Rule) -> Iterator[tuple[str, StrictBedrock]]:
    """The address of a server over a single Bedrock, whose requests it signs, and that Bedrock."""
    with ScriptedUpstream() as scripted:
        root = address_of("bedrock", scripted)
        bedrock = StrictBedrock(rule, lambda: root)
        scripted.answer = bedrock
        upstream = UpstreamSettings(url=root, dialect="bedrock", name="b", aws=AwsSettings(region=REGION))
        with serving(Settings(upstreams=[upstream], store="memory://")) as base:
            yield base, bedrock


def prompt(turn: int) -> str:
    """What the user says in a turn, counted from 1."""
    return f"Turn {turn}. Do what it takes."


Plan = Sequence[Sequence[tuple[str, Any]]]
"""The calls of a turn, step by step."""


def planned(plans: Sequence[Plan]) -> Rule:
    """The rule of models that follow plans, one turn after another, and then from the first one again. They
    think before each step, say something before a turn's second step, and end with a text. Calls of tools
    that are not offered are left out."""

    def rule(asked: Asked) -> Said:
        if asked.turn == 0:
            return Said("A title.")  # a request of the client's own
        plan = plans[(asked.turn - 1) % len(plans)]
        count = 0
        for at, step in enumerate(plan):
            calls = [call for call in step if call[0] in asked.tools]
            if calls and count >= asked.outputs:
                text = f"Step {at + 1} comes." if at else ""
                return Said(text, tuple(calls), f"For turn {asked.turn} I need step {at + 1}.")
            count += len(calls)
        return Said(f"Turn {asked.turn} is done.", (), f"Turn {asked.turn} needs no more.")

    return rule
