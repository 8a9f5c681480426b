"""Nodes that ask models, run tools and run agents."""
