"""The pipelined decode engine.  `engine.engine` brings torch; this package alone does not."""
