"""The database: keys and their use. SQLite in a file, or PostgreSQL."""
