"""Recorded streams: reading them, recognising what they are, and translating them."""
