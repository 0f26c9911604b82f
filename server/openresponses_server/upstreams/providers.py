"""The names that OpenTelemetry's conventions for generative AI have for providers."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

_PROVIDERS: Final = {
    "api.anthropic.com": "anthropic",
    "bedrock*.amazonaws.com": "aws.bedrock",
    "bedrock*.api.aws": "aws.bedrock",
    "*.services.ai.azure.com": "azure.ai.inference",
    "*.models.ai.azure.com": "azure.ai.inference",
    "*.openai.azure.com": "azure.ai.openai",
    "*.cognitiveservices.azure.com": "azure.ai.openai",
    "api.cohere.com": "cohere",
    "api.cohere.ai": "cohere",
    "api.deepseek.com": "deepseek",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "*aiplatform.googleapis.com": "gcp.vertex_ai",
    "api.groq.com": "groq",
    "*.ml.cloud.ibm.com": "ibm.watsonx.ai",
    "api.mistral.ai": "mistral_ai",
    "api.moonshot.ai": "moonshot_ai",
    "api.moonshot.cn": "moonshot_ai",
    "*api.openai.com": "openai",
    "api.perplexity.ai": "perplexity",
    "*api.x.ai": "x_ai",
}
"""A pattern of hosts, with at most one `*` → the convention's name of the provider."""


def provider_of(address: str, name: str) -> str:
    """The provider at this address, else the `name` of the upstream: the convention has no other for it."""
    host = urlsplit(address).hostname or ""
    return next((provider for pattern, provider in _PROVIDERS.items() if _fits(host, pattern)), name)


def _fits(host: str, pattern: str) -> bool:
    before, star, behind = pattern.partition("*")
    if not star:
        return host == pattern
    # what stands for the star ends where a name does, so that `notapi.x.ai` is not `api.x.ai`
    rest = host.removeprefix(before).removesuffix(behind)
    whole = host.startswith(before) and host.endswith(behind) and len(host) >= len(before) + len(behind)
    return whole and (bool(before) or not rest or behind[0] == "." or rest[-1] in ".-")
