"""The test kit for plugins and for programs that schedule."""

from rayched.testing.builders import a_node, a_pod
from rayched.testing.in_process import InProcessCluster
from rayched.testing.placements import Placements
from rayched.testing.running import RunningCluster

__all__ = ["InProcessCluster", "Placements", "RunningCluster", "a_node", "a_pod"]
