"""What an import costs in a fresh interpreter, and whom it brings along."""

import json
import subprocess
import sys
from statistics import median

_PROBE = """
import sys, time
before = set(sys.modules)
start = time.perf_counter()
import {module}
took = time.perf_counter() - start
loaded = {{name.partition(".")[0] for name in set(sys.modules) - before}}
import importlib.metadata, json
installed = importlib.metadata.packages_distributions().keys() - {{"{module}".partition(".")[0]}}
print(json.dumps([took, sorted(name for name in loaded & installed if name[0] != "_")]))
"""


def import_cost(module: str, *, times: int) -> tuple[float, list[str]]:
    """The median milliseconds of importing `module`, and the other people's packages that it loads.

    A first, unmeasured run writes the byte code and fills the disk cache.
    """
    runs = [_probe(module) for _ in range(times + 1)][1:]
    return median(took for took, _ in runs) * 1e3, runs[0][1]


def _probe(module: str) -> tuple[float, list[str]]:
    command = [sys.executable, "-c", _PROBE.format(module=module)]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        raise ImportError(done.stderr.strip().splitlines()[-1])
    took, packages = json.loads(done.stdout)
    return took, packages
