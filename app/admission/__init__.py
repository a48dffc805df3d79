"""The Redis queue between HTTP and the engine."""
