"""An agent in the terminal: tools with real effects in one folder, and the code that runs them."""
