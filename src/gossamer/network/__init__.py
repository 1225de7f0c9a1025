"""The network of agents: graphs, mixing matrices, delays, arrivals."""

from gossamer.network.arrivals import NOTHING, Arrivals
from gossamer.network.delay import Delay, Fixed, Geometric, Gilbert, PerLink, Scaled, Uniform
from gossamer.network.discovery import Discovery, broadcast, discover
from gossamer.network.mixing import AssumptionCheck, check_assumption_2
from gossamer.network.network import Network
from gossamer.network.spec import DELAYS, NETWORKS, network, parse_delay
from gossamer.network.trace import Trace

__all__ = [
    "DELAYS",
    "NETWORKS",
    "NOTHING",
    "Arrivals",
    "AssumptionCheck",
    "Delay",
    "Discovery",
    "Fixed",
    "Geometric",
    "Gilbert",
    "Network",
    "PerLink",
    "Scaled",
    "Trace",
    "Uniform",
    "broadcast",
    "check_assumption_2",
    "discover",
    "network",
    "parse_delay",
]
