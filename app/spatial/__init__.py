"""/detect and /point: a phrase and an image become boxes and points."""
