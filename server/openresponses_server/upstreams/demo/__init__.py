"""A built-in model without weights: deterministic, and able to show every shape of a stream.

It speaks Chat Completions, so that what it serves takes the way of any other upstream.
"""
