"""Tool calls on the wire: ids, aggregation, streamed JSON, declarations."""
