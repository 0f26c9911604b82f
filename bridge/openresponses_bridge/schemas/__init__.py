"""JSON Schemas of clients and tools: whether they can be used, and at what cost.

jsonschema-rs, which validates values, is an extra (`openresponses-bridge[tools]`) and is imported with the
first schema.
"""
