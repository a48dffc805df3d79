"""Jobs and their shards."""

import sqlalchemy as sa
from advanced_alchemy.types import DateTimeUTC
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "job",
        sa.Column("id", sa.String(32), nullable=False),
        sa.Column("tenant", sa.String(64), nullable=False),
        sa.Column("key_id", sa.String(32), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.String(1000), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.Column("spec", sa.Text(), nullable=True),
        sa.Column("webhook", sa.String(2000), nullable=True),
        sa.Column("images", sa.BigInteger(), nullable=True),
        sa.Column("shards", sa.Integer(), nullable=True),
        sa.Column("started_images", sa.BigInteger(), nullable=False),
        sa.Column("open_images", sa.Integer(), nullable=False),
        sa.Column("open_errors", sa.Integer(), nullable=False),
        sa.Column("lease_owner", sa.String(64), nullable=True),
        sa.Column("lease_until", DateTimeUTC(timezone=True), nullable=True),
        sa.Column("created_at", DateTimeUTC(timezone=True), nullable=False),
        sa.Column("started_at", DateTimeUTC(timezone=True), nullable=True),
        sa.Column("ended_at", DateTimeUTC(timezone=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_job"),
    )
    op.create_index("ix_job_tenant", "job", ["tenant"])
    op.create_index("ix_job_state", "job", ["state"])
    op.create_table(
        "job_shard",
        sa.Column("job_id", sa.String(32), nullable=False),
        sa.Column("number", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("attempts", sa.Integer(), nullable=False),
        sa.Column("done", sa.Boolean(), nullable=False),
        sa.Column("images", sa.Integer(), nullable=False),
        sa.Column("errors", sa.Integer(), nullable=False),
        sa.Column("objects", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "number", name="pk_job_shard"),
        sa.ForeignKeyConstraint(["job_id"], ["job.id"], name="fk_job_shard_job_id_job", ondelete="CASCADE"),
    )


def downgrade() -> None:
    op.drop_table("job_shard")
    op.drop_table("job")
