"""The WebSocket transport: one connection, in each of its lanes one response after the other."""
