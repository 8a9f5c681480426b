"""A system that has no threads left."""

import threading
from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def no_more_threads() -> Generator[None]:
    """Have the system refuse every new thread, as it does when a container has as many as it may."""
    before = threading.stack_size(1 << 62)
    try:
        yield
    finally:
        threading.stack_size(before)
