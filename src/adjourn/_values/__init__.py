"""Convert values to bytes and back: the codec, its registry and tags, and the copies that protect shared state."""
