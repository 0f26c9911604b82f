"""Compaction with any model: it condenses, we seal, later turns open (specification, "Compaction")."""
