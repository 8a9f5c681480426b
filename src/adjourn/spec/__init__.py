"""Agents described in YAML files: `load` a folder of them."""

from ._folder import Checkpoint, Loaded, Mistake, load
from ._schema import schema
from ._served import Served

__all__ = ["Checkpoint", "Loaded", "Mistake", "Served", "load", "schema"]
