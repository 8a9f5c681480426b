"""Files for agents: the tools, and the backends that hold the files."""
