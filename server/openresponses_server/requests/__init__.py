"""A request made ready: read, checked, held to its constraints, put into the words of its upstream."""
