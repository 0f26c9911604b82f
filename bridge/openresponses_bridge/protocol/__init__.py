"""The wire vocabulary as msgspec structs, and the codec between them and bytes."""
