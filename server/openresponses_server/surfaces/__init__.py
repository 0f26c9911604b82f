"""The APIs of clients: what reads a request, has it answered, and sends the answer."""
