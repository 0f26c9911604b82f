"""Traces: all that passed of one response, between its client, this server and its upstreams."""
