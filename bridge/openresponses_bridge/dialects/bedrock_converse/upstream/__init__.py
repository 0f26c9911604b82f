"""We are the client of a model that speaks this."""
