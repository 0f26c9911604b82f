"""What the server needs of each dialect, as one table: where requests go, how they are made, how the
answer is read. A dialect joins by its row."""
