-- ARGV: tenant id
-- Returns 1, or 0 when there is no such handle.
sweep(now_ms())
return drop(ARGV[1], ARGV[2])
