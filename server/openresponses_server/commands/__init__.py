"""Where the plugin of pytest has its documented name; the commands are in `openresponses_cli`."""
