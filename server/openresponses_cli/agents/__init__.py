"""An agent in the terminal: tools with real effects in one folder, and what runs them."""
