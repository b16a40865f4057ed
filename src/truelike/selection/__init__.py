"""Selection of models and parameters on held-out data: tune, compare and AutoRecommender on one search and executor."""
