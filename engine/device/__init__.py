"""Streams and events of the machines that the engine runs on."""
