"""Generate runs that the notebooks share, in their order: python data/generate.py facts-2m/diverse_beam,greedy."""

import sys

from pro_lib.settings import Settings

model, strategies = sys.argv[1].split("/")
settings = Settings(model=model, dataset=["world-facts", "world-facts-reworded"])
for strategy in strategies.split(","):
    for pair in settings.pairs():
        if strategy == "diverse_beam":  # 00 and 01 ask for the test questions alone; packs follow the order of asking
            settings.run(*pair, strategy=strategy)
        settings.run(*pair, "validation", settings.split, strategy=strategy)
