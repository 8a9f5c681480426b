"""What can be done with sessions that need a store and no program."""
