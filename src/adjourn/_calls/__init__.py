"""Calls: one call of a model and one call of a tool, the same for agents and graph nodes."""
