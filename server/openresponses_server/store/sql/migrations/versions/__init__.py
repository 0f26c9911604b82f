"""The migrations, one module for each step."""
