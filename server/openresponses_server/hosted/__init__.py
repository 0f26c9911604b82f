"""Tools that the server runs itself, between two answers of a model that calls them."""
