"""VS Code's language-model interface over the models of this server, or of any Responses server.

Import its modules by name: `provider` has the provider, `in_process` makes one for this server's models and
`remote` one for another server's.
"""
