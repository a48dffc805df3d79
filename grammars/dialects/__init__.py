"""How each model family writes points and boxes; one small file each."""
