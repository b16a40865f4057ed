"""Networks by the same objectives: any for the preference, any for the flips. Needs PyTorch (`truelike[deep]`)."""
