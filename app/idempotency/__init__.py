"""Idempotency-Key: a request that is sent again is answered again, not worked on again."""
