"""Tools whose fields hold secrets of their client."""

from __future__ import annotations

MCP = {
    "type": "mcp",
    "server_label": "shown-label",
    "server_url": "https://user:hidden-0-userinfo@shown.example:8443/hidden-1-in-its-path"
    "?k=hidden-2-in-its-query#hidden-3-in-its-fragment",
    "headers": {"Authorization": "Bearer hidden-4-header", "X-Tenant": "hidden-5-header"},
    "authorization": "hidden-6-authorization",
}


NETWORK = {
    "type": "allowlist",
    "allowed_domains": ["shown.example"],
    "domain_secrets": [{"domain": "shown.example", "name": "N", "value": "hidden-7-domain-secret"}],
}


SHELL = {"type": "shell", "environment": {"type": "container_auto", "network_policy": NETWORK}}


INTERPRETER = {
    "type": "code_interpreter",
    "container": {"type": "auto", "network_policy": NETWORK, "env": {"A": "hidden-8-container-env"}},
}


LOCAL = {"type": "local_environment", "environment": {"A": "hidden-9-environment"}, "api_key": "hidden-a-key"}


TOOLS = [MCP, SHELL, INTERPRETER, LOCAL]


SECRETS = [f"hidden-{place:x}" for place in range(12)]
