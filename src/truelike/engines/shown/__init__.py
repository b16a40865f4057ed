"""The stochastic engine of shown pairs: mini-batch steps on the likelihood of pairs with known labels and flips."""
