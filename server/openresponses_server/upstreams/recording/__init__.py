"""Upstreams and recordings: recording an upstream, and answering from a recording."""
