"""The parts of the store suite, one for each promise; `adjourn.testing.StoreSuite` has them all."""
