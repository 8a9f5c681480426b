"""Frames, questions, kept calls, records and programs: what runs, and what is stored of it."""
