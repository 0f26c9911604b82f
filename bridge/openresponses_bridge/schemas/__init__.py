"""JSON Schemas that clients and tools send: which of them can be used, and what judging a value by one costs.

jsonschema-rs, which judges, is an extra (`openresponses-bridge[tools]`) and is imported with the first
schema.
"""
