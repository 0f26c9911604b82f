"""Recordings of what goes over wires: their lines, what is kept secret in them, writing and reading them."""
