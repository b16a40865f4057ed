"""What was shown: pairs with labels, miss rates, calibrated probabilities; and guesses where it is not known."""
