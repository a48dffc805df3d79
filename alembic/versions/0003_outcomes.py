"""Digests of shards, notes of jobs, and what became of their webhooks."""

import sqlalchemy as sa
from advanced_alchemy.types import DateTimeUTC
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_SHARD = ("results_digest", "errors_digest")
_JOB = (
    sa.Column("notes", sa.Text(), nullable=False, server_default=""),
    sa.Column("webhook_state", sa.String(16), nullable=True),
    sa.Column("webhook_attempts", sa.Integer(), nullable=False, server_default="0"),
    sa.Column("webhook_status", sa.Integer(), nullable=True),
    sa.Column("webhook_error", sa.String(200), nullable=False, server_default=""),
    sa.Column("webhook_due", DateTimeUTC(timezone=True), nullable=True),
    sa.Column("webhook_owner", sa.String(64), nullable=True),
)


def upgrade() -> None:
    for column in _JOB:
        op.add_column("job", column.copy())
    op.create_index("ix_job_webhook_due", "job", ["webhook_due"])
    for name in _SHARD:
        op.add_column("job_shard", sa.Column(name, sa.String(100), nullable=False, server_default=""))


def downgrade() -> None:
    with op.batch_alter_table("job_shard") as table:
        for name in _SHARD:
            table.drop_column(name)
    with op.batch_alter_table("job") as table:
        table.drop_index("ix_job_webhook_due")
        for column in _JOB:
            table.drop_column(column.name)
