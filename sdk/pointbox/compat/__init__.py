"""Stand-ins for the clients of other services."""
