"""Recordings of HTTP exchanges: their format, masking, writing and reading."""
