"""The contestants on Postgres and Redis: a script each, as in the folder above."""
