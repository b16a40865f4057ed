"""The paper's experiments: what is run, what came out, and a verdict on each claim."""
