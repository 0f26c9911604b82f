"""The bridge is a client of a server with the Interactions API."""
