"""The plug-in that the command line with stand-ins loads."""

import harness
from stand_in.annotator import Ranked

harness.benchmark("ranked", version="1")(Ranked)
