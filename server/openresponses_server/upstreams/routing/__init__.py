"""Where a request goes: its model's routes, which of them is asked, and what becomes of it."""
