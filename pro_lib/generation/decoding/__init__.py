"""Decode answers in a prefix tree.

This package uses only token ids and log-probabilities.
"""
