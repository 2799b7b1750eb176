"""Waits for a state instead of a time; knows no test."""

import time

PATIENCE = 300.0  # seconds, after which nothing will come any more


def until(there):
    """Wait for something, however busy the machine is."""
    end = time.monotonic() + PATIENCE
    while not there():
        assert time.monotonic() < end
        time.sleep(0.01)
