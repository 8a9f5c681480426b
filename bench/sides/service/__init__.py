"""The contestants as servers: a script each, which is the server or, in a process of its own, the load on it."""
