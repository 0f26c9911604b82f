"""An agent of one's own over any model: prompts, tools and the loop between them. Sans-IO."""
