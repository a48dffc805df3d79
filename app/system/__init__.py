"""Is it alive, is it ready, which models does it serve."""
