"""JSON Schemas that others wrote: whether they can be used, what judging a value by one costs, the judging.

The engine, jsonschema-rs, is an extra (`openresponses-bridge[tools]`) and is loaded by the first schema.
"""
