"""The client's side: we answer a client of Converse."""
