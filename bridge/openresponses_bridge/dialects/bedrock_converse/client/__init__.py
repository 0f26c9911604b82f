"""The bridge answers a client of Converse."""
