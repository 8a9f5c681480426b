"""The contestants as agents: a script each, as in the folder above."""
