"""Top-k items by scores or by factors. Works on arrays only."""
