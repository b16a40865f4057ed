"""Fitting tables of factors: engines that do an epoch, and the trainer that counts them."""
