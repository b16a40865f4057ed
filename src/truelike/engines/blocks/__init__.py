"""Training on blocks of users: out of core on one machine, or on a cluster."""
