"""What a model may say: dialects, automata and coordinate bounds.  Pure: no torch, no tokenizer library."""
