"""Controlled worlds: answers whose distribution and truth are known, by simulation; knows no model, text or file.

`places` says where adding answers to NLL can matter at all. Everything is a pure function of arrays and a generator.
"""

from pro_lib.worlds.places import least_overtaken, pro_2_minus_nll
from pro_lib.worlds.simulated import BASE, World, grid, questions

__all__ = ["BASE", "World", "grid", "least_overtaken", "pro_2_minus_nll", "questions"]
