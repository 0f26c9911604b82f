"""Recorded streams: reading them, telling what they are, and translating them."""
