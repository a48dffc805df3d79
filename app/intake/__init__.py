"""Untrusted bytes become one upright RGB image. The decision table is docs/images.md."""
