"""Files for agents: the tools, and where the files are."""
