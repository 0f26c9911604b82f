"""Compares the server with others. Each is a process of its own on one core, between a model process that
this package provides and clients that only count, which share the other core."""
