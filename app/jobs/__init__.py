"""Jobs: the same question about every image of a bucket or a folder; see docs/jobs.md."""
