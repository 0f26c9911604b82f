"""The client's side: we answer a client of the Gemini API."""
