"""Calls: one call of a model, and one call of a tool, the same in agents and in the nodes of graphs."""
