"""What one run or one question looks like to a person: tables, and the explorer of notebook 00; chooses and judges no method."""

from pro_lib.explorer.app import *  # noqa
from pro_lib.explorer.app import Explorer, explore
