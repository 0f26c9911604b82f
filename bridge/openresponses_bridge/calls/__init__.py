"""What a tool call is on the wire: ids, aggregation, streamed JSON, declarations."""
