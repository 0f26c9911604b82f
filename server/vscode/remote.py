"""A provider over any Responses server."""

from __future__ import annotations

from typing import Unpack

from bridge.dialects.responses import ResponsesOptions
from bridge.seal import Sealer
from server.client import OpenResponsesClient
from server.settings import UpstreamSettings
from server.upstreams.dialects import RESPONSES
from server.upstreams.listing import Listing
from server.upstreams.routing import Router
from server.upstreams.targets import Configured
from server.vscode.provider import LanguageModelChatProvider, ProviderOptions


def over_server(client: OpenResponsesClient, **options: Unpack[ProviderOptions]) -> LanguageModelChatProvider:
    """A provider of the models that the client's server lists, which answers. The client stays the caller's
    to close."""
    server = client.server
    only = Configured(UpstreamSettings(), server.name, server, RESPONSES, ResponsesOptions(), Sealer())
    return LanguageModelChatProvider(client, Listing(Router([only])), **options)
