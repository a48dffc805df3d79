"""The pipelined decode engine.  `from engine.engine import Engine` brings torch; this package alone does not."""
