"""The bridge answers a client of the Interactions API."""
