"""A library for an agent of your own over any model: prompts, tools and the loop. Sans-IO."""
