"""The upstream's side: we are the client of a model that speaks Chat Completions."""
