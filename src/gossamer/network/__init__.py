"""The network of agents: graphs, mixing matrices, delays, arrivals."""

from gossamer.network.arrivals import NOTHING, Arrivals
from gossamer.network.delay import Delay, Fixed, Geometric, Gilbert, PerLink, Uniform
from gossamer.network.discovery import Discovery, broadcast, discover
from gossamer.network.graph_schedule import GraphSchedule, RoundGraph
from gossamer.network.graph_schedule_text import GRAPH_SCHEDULES, parse_graph_schedule
from gossamer.network.link_matrix import LinkMatrix
from gossamer.network.links import Links
from gossamer.network.mixing import AssumptionCheck, check_assumption_2
from gossamer.network.network import Network
from gossamer.network.rounds import Rounds
from gossamer.network.scaled_delay import Scaled
from gossamer.network.spec import DELAYS, NETWORKS, network, parse_delay
from gossamer.network.spectrum import end_of_spectrum
from gossamer.network.trace import Trace

__all__ = [
    "DELAYS",
    "GRAPH_SCHEDULES",
    "NETWORKS",
    "NOTHING",
    "Arrivals",
    "AssumptionCheck",
    "Delay",
    "Discovery",
    "Fixed",
    "Geometric",
    "Gilbert",
    "GraphSchedule",
    "LinkMatrix",
    "Links",
    "Network",
    "PerLink",
    "RoundGraph",
    "Rounds",
    "Scaled",
    "Trace",
    "Uniform",
    "broadcast",
    "check_assumption_2",
    "discover",
    "end_of_spectrum",
    "network",
    "parse_delay",
    "parse_graph_schedule",
]
