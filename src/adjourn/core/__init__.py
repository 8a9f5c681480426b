"""What everything shares: addresses, frames, interrupts, events, the codec and the errors."""
