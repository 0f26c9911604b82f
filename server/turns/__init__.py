"""Turns on a WebSocket: one connection, one response after the other."""
