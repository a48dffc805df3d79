"""Reproducible measurements."""
