"""The convention's names of providers."""

import pytest

from openresponses_server.upstreams import profiles
from openresponses_server.upstreams.providers import provider_of
from tests.support.gen_ai import PROVIDERS

KNOWN = {
    "anthropic": "anthropic",
    "azure": "azure.ai.openai",
    "bedrock": "aws.bedrock",
    "bedrock-mantle": "aws.bedrock",
    "deepseek": "deepseek",
    "gemini": "gcp.gemini",
    "gemini-chat": "gcp.gemini",
    "groq": "groq",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "openai": "openai",
    "perplexity": "perplexity",
    "vertex": "gcp.vertex_ai",
    "xai": "x_ai",
}


@pytest.mark.parametrize("name", profiles.names())
def test_the_provider_of_each_profile(name: str) -> None:
    for at in profiles.profile(name).dialects.values():
        address = (at.url or "").replace("${AZURE_RESOURCE_NAME}", "mine").replace("${AWS_REGION:-", "")
        assert provider_of(address, name) == KNOWN.get(name, name)
        assert name not in KNOWN or KNOWN[name] in PROVIDERS


@pytest.mark.parametrize(
    ("host", "provider"),
    [
        ("api.openai.com", "openai"),
        ("eu.api.openai.com", "openai"),
        ("us-east-1.api.x.ai", "x_ai"),
        ("europe-west4-aiplatform.googleapis.com", "gcp.vertex_ai"),
        ("bedrock-runtime-fips.us-west-2.amazonaws.com", "aws.bedrock"),
        ("us-south.ml.cloud.ibm.com", "ibm.watsonx.ai"),
        ("mine.services.ai.azure.com", "azure.ai.inference"),
        ("api.cohere.com", "cohere"),
        ("api.cohere.ai", "cohere"),
        ("API.OpenAI.com", "openai"),
        # what only looks like one of them
        ("notapi.x.ai", "mine"),
        ("api.openai.com.example.org", "mine"),
        ("myaiplatform.googleapis.com", "mine"),
        ("bedrock.example.org", "mine"),
        ("bedrock.us-east-1.amazonaws.com.example.org", "mine"),
        ("openai.azure.com", "mine"),
        ("127.0.0.1", "mine"),
        ("", "mine"),
    ],
)
def test_the_provider_at_a_host(host: str, provider: str) -> None:
    assert provider_of(f"https://{host}:8443/v1", "mine") == provider
    assert provider == "mine" or provider in PROVIDERS


def test_an_address_without_a_host_has_the_name_of_the_upstream() -> None:
    assert [provider_of(each, "mine") for each in ("", "codex", "unix:/run/s.sock")] == ["mine"] * 3
