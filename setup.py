"""What an installed package holds: the code, and in it `data` and `notebooks`; all else is in pyproject.toml."""

from setuptools import find_packages, setup

INSIDE = {"pro_lib.data": "data", "pro_lib.notebooks": "notebooks"}
setup(packages=[*find_packages(include=["pro_lib*"]), *INSIDE], package_dir=INSIDE)
