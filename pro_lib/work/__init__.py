"""How the work of a run is done: packs of questions, and workers on a Ray cluster; knows no score."""
