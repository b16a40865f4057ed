"""The engine of lists: listwise objectives on sampled negatives."""
