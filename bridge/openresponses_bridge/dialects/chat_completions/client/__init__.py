"""The client's side: we answer a client that speaks Chat Completions."""
