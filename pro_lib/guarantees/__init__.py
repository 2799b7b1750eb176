"""Promises: what a user may rely on, with the error a promise may have; arrays in and out, knows no model and no run."""
