"""JSON Schemas of types, and checks whether data fits types and schemas."""
