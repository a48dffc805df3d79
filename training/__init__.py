"""Makes the default checkpoint: procedural scenes, training, evaluation."""
