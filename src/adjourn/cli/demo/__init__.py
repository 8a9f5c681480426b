"""The demos of `adjourn demo`."""
