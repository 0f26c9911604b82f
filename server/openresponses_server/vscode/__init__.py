"""VS Code's language-model interface over the models of this server, or of any Responses server.

Each module is imported by its name: `provider` is the provider, which `in_process` puts over this server's
models and `remote` over another server's.
"""
