"""The engine of `ImpressionMF`: samples from the posterior by Langevin dynamics."""
