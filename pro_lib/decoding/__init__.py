"""Answers found in a packed prefix tree, with certificates; knows token ids and log-probabilities, no text, dataset or score."""
