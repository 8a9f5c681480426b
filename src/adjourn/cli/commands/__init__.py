"""The commands of `adjourn`, one module each."""
