"""The sampled engine: mini-batch SGD on positives and sampled negatives."""
