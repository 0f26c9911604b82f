"""A run: one response being generated, from its request to its terminal event."""
