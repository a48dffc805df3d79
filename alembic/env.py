"""Run by alembic for `pointbox db upgrade`, and by `alembic revision` with the connection it is given."""

from alembic import context

from app.db.models import ApiKey

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=ApiKey.metadata,
    render_as_batch=True,  # SQLite alters a table by copying it
)
with context.begin_transaction():
    context.run_migrations()
