"""Image handles: send and prefill a picture once, ask about it often."""
