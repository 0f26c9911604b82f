"""Models: their identity and abilities, tokens and usage."""
