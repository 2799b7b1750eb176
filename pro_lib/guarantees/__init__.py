"""Promises: what a user may rely on, with what error; arrays in and out, knows no model and no run."""
