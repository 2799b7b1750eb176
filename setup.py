"""Put `data` and `notebooks` into the installed package; pyproject.toml has all other settings."""

from setuptools import find_packages, setup

INSIDE = {"pro_lib.data": "data", "pro_lib.notebooks": "notebooks"}
setup(packages=[*find_packages(include=["pro_lib*"]), *INSIDE], package_dir=INSIDE)
