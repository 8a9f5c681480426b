"""The contestants. Each is a script: `python -m bench.sides.NAME WORKLOAD SIZE` prints one line of JSON."""
