"""The WebSocket transport: one connection, one response after the other."""
