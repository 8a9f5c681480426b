"""Values to bytes and back: the codec, its registry and tags, and the copies that keep state from being shared."""
