"""Where a model is reached: behind HTTP, or built in."""
