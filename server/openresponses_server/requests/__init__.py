"""Reads requests, checks them, enforces their constraints and translates them for their upstreams."""
