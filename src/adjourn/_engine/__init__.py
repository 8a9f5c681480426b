"""Frames, questions, kept calls, records and programs: what runs, and how it is stored."""
