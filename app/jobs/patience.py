"""Waiting for a store that is away."""

from __future__ import annotations

import stamina

from app.jobs.errors import StoreAway

PATIENCE_S = 600.0
"""How long a store may be away before the job stops; it can be resumed."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 15.0

patiently = stamina.RetryingCaller(None, PATIENCE_S, FIRST_PAUSE_S, LONGEST_PAUSE_S).on(StoreAway)
"""Calls a function."""
patiently_async = stamina.AsyncRetryingCaller(None, PATIENCE_S, FIRST_PAUSE_S, LONGEST_PAUSE_S).on(StoreAway)
"""Awaits a coroutine function."""
