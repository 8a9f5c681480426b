"""Types and JSON Schemas, and whether data fits them."""
