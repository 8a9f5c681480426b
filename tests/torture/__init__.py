"""A soak under fire: real processes run, answer and take up hundreds of sessions while everything around them breaks.

`programs` is what they run, `crew` the processes, `chaos` what happens to them and to their store, `history` the
checker, and `soak` puts these together. `make torture` runs it, `tests/proof/test_torture.py` a short form.
"""
