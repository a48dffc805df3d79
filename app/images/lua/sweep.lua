-- Forgets the images whose time is over.
sweep(now_ms())
