"""What commands show on a terminal, and the servers and stores that they ask for it."""
