"""A provider over any Responses server."""

from __future__ import annotations

from typing import Unpack

from openresponses_bridge.seal import Sealer
from openresponses_server.client import OpenResponsesClient
from openresponses_server.settings import UpstreamSettings
from openresponses_server.upstreams.dialects import RESPONSES
from openresponses_server.upstreams.listing import Listing
from openresponses_server.upstreams.profiles import DialectOptions
from openresponses_server.upstreams.routing.models import Router
from openresponses_server.upstreams.targets import Configured
from openresponses_server.vscode.provider import LanguageModelChatProvider, ProviderOptions


def over_server(client: OpenResponsesClient, **options: Unpack[ProviderOptions]) -> LanguageModelChatProvider:
    """Return a provider of the models that the client's server lists and answers for. The caller has to close
    the client."""
    server = client.server
    spoken = DialectOptions(RESPONSES.side.options)
    only = Configured(UpstreamSettings(), server.name, server, RESPONSES, spoken, Sealer())
    return LanguageModelChatProvider(client, Listing(Router([only])), **options)
