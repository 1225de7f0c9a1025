"""What an agent is told, by whom, and how it reads that."""

import dataclasses
import os

import pytest

from gossamer.errors import UserError
from gossamer.runtime import environment
from gossamer.runtime.environment import FIELDS, VARIABLES, Run, host_name, read_environment
from gossamer.runtime.schedulers import expand_nodes, job_port, own_address, to_run_id

# One value for every field, none of them its default.
EVERYTHING = Run(
    rank=2,
    agents=4,
    run="a-run-7",
    network="ring:4",
    clusters="2,2",
    delay="uniform:5,60",
    loss=0.125,
    mixing="uniform",
    lazy=True,
    clip_weights="renormalised",
    startup="full",
    seed=7,
    algorithm="pc-asgd/theta=pv",
    book="10.0.0.1:29500",
    key_file="/keys/a key",
    address="10.0.0.2",
    host="rack-3",
    transport="sockets",
    compress="topk:0.01",
    faults="loss:0.1",
    deadline=2.5,
    tolerance=3,
    meet=0.5,
    lockstep=True,
    max_age=5,
    folder="runs/a",
    record=True,
    restarts=3,
    launcher=4711,
)


def test_without_a_launcher_a_script_is_a_run_of_one_agent():
    run = read_environment({"PATH": "/bin", "GOSSAMER_DATA": "/data"})
    assert (run.rank, run.agents, run.network, run.book, run.serves_book) == (0, 1, "complete:1", None, False)
    assert run.run == f"alone-{os.getpid()}"  # two of them at a time do not meet in shared memory
    assert run.make_network().num_agents == 1


def test_all_that_a_launcher_writes_is_read_back_as_it_was():
    lone = Run()
    same = [name for name in FIELDS if getattr(EVERYTHING, name) == getattr(lone, name)]
    assert same == [] and len(VARIABLES) == len(FIELDS) == len(dataclasses.fields(Run)) - 1
    written = EVERYTHING.to_environment()
    assert set(written) == set(VARIABLES) and read_environment(written) == EVERYTHING


def test_what_would_be_assumed_anyway_is_not_written():
    written = Run(rank=1, agents=3, run="x", loss=0.5).to_environment()
    assert written == {
        "GOSSAMER_RANK": "1",
        "GOSSAMER_AGENTS": "3",
        "GOSSAMER_RUN": "x",
        "GOSSAMER_LOSS": "0.5",
    }


def test_an_empty_variable_is_one_that_is_not_set():
    assert read_environment({"GOSSAMER_NETWORK": "", "GOSSAMER_LOSS": "", "GOSSAMER_RANK": ""}).loss == 0


def test_a_run_makes_its_network_and_refuses_one_of_another_size():
    net = Run(agents=4, network="ring:4", delay="3", clusters="2,2", loss=0.1, lazy=True).make_network()
    assert (net.num_agents, net.num_links, net.delay.typical, net.loss, net.lazy) == (4, 4, 3, 0.1, True)
    with pytest.raises(UserError, match="network 'ring:5' has 5 agents but the run has 4"):
        Run(agents=4, network="ring:5").make_network()


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"agents": 0}, "agents must lie between 1 and"),
        ({"rank": 3, "agents": 3}, "rank must lie between 0 and 2 with 3 agents, got 3"),
        ({"rank": -1}, "rank must be 0 or more, got -1"),
        ({"run": "My Run"}, "try my-run"),
        ({"run": "x" * 41}, "1 to 40 small letters"),
        ({"deadline": 0.0}, "deadline must be auto or seconds above 0, got '0.0'"),
        ({"deadline": float("nan")}, "deadline must be auto or seconds above 0"),
        ({"tolerance": -1}, "tolerance must be 0 or more, got -1"),
        ({"max_age": 0}, "max_age must be 1 or more, got 0"),
        ({"transport": "pigeon"}, "unknown transport 'pigeon'"),
        ({"startup": "later"}, "unknown startup 'later'"),
        ({"book": "nowhere"}, "must be host:port"),
        ({"address": "10.0.0.1"}, "address 10.0.0.1 can be reached from other machines, and the run has no key"),
    ],
)
def test_values_out_of_range_are_refused_in_one_line(values, words):
    with pytest.raises(UserError, match=words) as refusal:
        Run(**values)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"GOSSAMER_RANK": "first"}, "GOSSAMER_RANK: rank must be a whole number, got 'first'"),
        ({"GOSSAMER_LOSS": "much"}, "GOSSAMER_LOSS: loss must be a number, got 'much'"),
        ({"GOSSAMER_LOCKSTEP": "perhaps"}, "GOSSAMER_LOCKSTEP: lockstep must be true or false"),
        ({"GOSSAMER_AGENTS": "4"}, "GOSSAMER_AGENTS is 4 but GOSSAMER_RANK is not set"),
        ({"GOSSAMER_AGENTS": "4", "GOSSAMER_RANK": "1"}, "4 agents cannot find each other without GOSSAMER_BOOK"),
        ({"GOSSAMER_RANK": "1"}, "rank must lie between 0 and 0 with 1 agents, got 1"),
        ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR or MASTER_PORT is not"),
        ({"RANK": "zero", "WORLD_SIZE": "2"}, "RANK must be a whole number, got 'zero'"),
    ],
)
def test_contradictions_between_variables_are_refused_in_one_line(variables, words):
    with pytest.raises(UserError, match=words) as refusal:
        read_environment(variables)
    assert "\n" not in str(refusal.value)


def test_agents_of_one_book_without_a_name_have_the_same_one():
    one, other = (
        read_environment({"GOSSAMER_RANK": str(rank), "GOSSAMER_AGENTS": "2", "GOSSAMER_BOOK": "10.0.0.1:29500"})
        for rank in range(2)
    )
    assert one.run == other.run == "book-10-0-0-1-29500" and not one.serves_book


# torchrun.

WORKER = {
    "RANK": "0",
    "WORLD_SIZE": "4",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "some-host",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "0",
}


def test_one_torchrun_with_many_workers_on_one_machine():
    first, last = (read_environment({**WORKER, "RANK": rank}) for rank in ("0", "3"))
    assert (first.rank, last.rank, last.agents, last.network) == (0, 3, 4, "complete:4")
    assert first.book == last.book == "127.0.0.1:29501" and first.run == last.run == "torchrun-29500"
    assert first.serves_book and not last.serves_book


def test_torchrun_on_several_machines(monkeypatch):
    asked = []
    monkeypatch.setattr(environment, "own_address", lambda toward: asked.append(toward) or "10.0.0.2")
    two_machines = {**WORKER, "LOCAL_WORLD_SIZE": "2", "GOSSAMER_KEY_FILE": "key", "TORCHELASTIC_RUN_ID": "My_Job"}
    run = read_environment({**two_machines, "RANK": "3"})
    assert (run.book, run.address, run.run, asked) == ("some-host:29501", "10.0.0.2", "torchrun-my-job", ["some-host"])
    given = read_environment({**two_machines, "GOSSAMER_ADDRESS": "10.0.0.9", "GOSSAMER_BOOK": "book:1"})
    assert (given.book, given.address, given.serves_book, len(asked)) == ("book:1", "10.0.0.9", False, 1)
    with pytest.raises(UserError, match="the run has no key"):
        read_environment({**two_machines, "GOSSAMER_KEY_FILE": ""})


def test_a_torchrun_for_each_agent_says_nothing_but_how_often_it_was_started():
    own = Run(rank=2, agents=3, run="x", book="127.0.0.1:9", restarts=1).to_environment()
    inside = {**WORKER, "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "x-2"}
    for count, restarts in (("0", 1), ("1", 1), ("2", 2)):
        run = read_environment({**inside, **own, "TORCHELASTIC_RESTART_COUNT": count})
        assert (run.rank, run.agents, run.run, run.book, run.restarts) == (2, 3, "x", "127.0.0.1:9", restarts)


def test_a_torchrun_of_one_worker_is_a_run_of_one_agent():
    run = read_environment({**WORKER, "WORLD_SIZE": "1"})
    assert (run.rank, run.agents, run.book, run.serves_book) == (0, 1, None, False)


def test_the_port_after_the_last_is_not_used():
    assert read_environment({**WORKER, "MASTER_PORT": "65535"}).book == "127.0.0.1:65534"


def test_the_number_of_agents_may_be_said_twice_but_not_differently():
    assert read_environment({**WORKER, "GOSSAMER_AGENTS": "4", "GOSSAMER_NETWORK": "ring:4"}).network == "ring:4"
    with pytest.raises(UserError, match="GOSSAMER_AGENTS is 3 but there are 4 processes"):
        read_environment({**WORKER, "GOSSAMER_AGENTS": "3"})


# Slurm.

TASK = {
    "SLURM_PROCID": "0",
    "SLURM_NTASKS": "4",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_JOB_ID": "200505",
    "SLURM_STEP_ID": "0",
    "SLURM_JOB_NODELIST": "gnode10",
    "SLURM_STEP_NODELIST": "gnode10",
    "SLURMD_NODENAME": "gnode10",
    "SLURM_LAUNCH_NODE_IPADDR": "192.0.2.7",
}


def test_the_tasks_of_srun_on_one_node():
    first, last = (read_environment({**TASK, "SLURM_PROCID": rank}) for rank in ("0", "3"))
    assert (first.rank, last.rank, last.agents, last.run) == (0, 3, 4, "slurm-200505-0")
    assert first.book == last.book == f"127.0.0.1:{job_port(200505, 0)}"
    assert (first.address, first.serves_book, last.serves_book) == ("127.0.0.1", True, False)


@pytest.mark.parametrize(
    ("node", "toward"), [("gnode09", "gnode10"), ("gnode10", "gnode09")], ids=["the first node", "another one"]
)
def test_the_tasks_of_srun_on_several_nodes_meet_at_the_first(monkeypatch, node, toward):
    asked = []
    monkeypatch.setattr(environment, "own_address", lambda other: asked.append(other) or "10.0.0.2")
    nodes = {"SLURM_STEP_NODELIST": "gnode[09-11]", "SLURMD_NODENAME": node, "GOSSAMER_KEY_FILE": "key"}
    run = read_environment({**TASK, **nodes})
    assert (run.book, run.address) == (f"gnode09:{job_port(200505, 0)}", "10.0.0.2") and asked == [toward]


def test_where_slurm_names_no_nodes_the_one_that_srun_was_called_on_is_taken(monkeypatch):
    monkeypatch.setattr(environment, "own_address", lambda other: "10.0.0.2")
    none = {"SLURM_STEP_NODELIST": "", "SLURM_JOB_NODELIST": "", "GOSSAMER_KEY_FILE": "key"}
    assert read_environment({**TASK, **none}).book == f"192.0.2.7:{job_port(200505, 0)}"
    with pytest.raises(UserError, match="set GOSSAMER_BOOK"):
        read_environment({**TASK, **none, "SLURM_LAUNCH_NODE_IPADDR": ""})


@pytest.mark.parametrize(
    "changes",
    [
        {"SLURM_STEP_ID": "", "SLURM_STEP_NUM_TASKS": ""},  # a batch script, which is part of no step
        {"SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1"},  # a shell of salloc with room for four tasks
        {"SLURM_NTASKS": "1", "SLURM_STEP_NUM_TASKS": ""},
        {"SLURM_PROCID": ""},
    ],
)
def test_inside_slurm_but_not_a_task_of_many_is_alone(changes):
    run = read_environment({**TASK, **changes})
    assert (run.rank, run.agents, run.book, run.serves_book) == (0, 1, None, False)


def test_a_job_that_was_requeued_says_so():
    assert read_environment({**TASK, "SLURM_RESTART_COUNT": "2"}).restarts == 2
    assert read_environment({**TASK, "SLURM_RESTART_COUNT": "2", "GOSSAMER_RESTARTS": "5"}).restarts == 5


def test_torchrun_inside_a_task_of_slurm_wins():
    assert read_environment({**TASK, **WORKER}).run == "torchrun-29500"


def test_ports_of_jobs_are_below_those_of_outgoing_connections_and_differ_for_neighbours():
    ports = [job_port(job, step) for job in range(10**7, 10**7 + 50) for step in range(20)]
    assert len(set(ports)) == len(ports) and all(1024 < port < 32_768 for port in ports)
    assert 1024 < job_port(67_043_328, 4_294_967_290) < 32_768


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("", []),
        ("node1", ["node1"]),
        ("a,b-2", ["a", "b-2"]),
        ("node[03-05,9]", ["node03", "node04", "node05", "node9"]),
        ("node[8-11]", ["node8", "node9", "node10", "node11"]),
        ("node[098-101]", ["node098", "node099", "node100", "node101"]),
        ("a[1-2],gpu,b[7]", ["a1", "a2", "gpu", "b7"]),
        ("r[1-2]n[01-02]x", ["r1n01x", "r1n02x", "r2n01x", "r2n02x"]),
        ("c1-2.cluster.example", ["c1-2.cluster.example"]),
    ],
)
def test_lists_of_nodes_are_expanded(text, nodes):
    assert expand_nodes(text) == nodes


@pytest.mark.parametrize("text", ["node[1-", "node[]", "node[5-3]", "node[a-b]", "node[1-2]]", "n[1-[2]]", "n[1,]"])
def test_a_list_of_nodes_that_slurm_would_not_write_is_refused(text):
    with pytest.raises(UserError, match=r"cannot read the nodes '.*'; Slurm writes them like node\[03-05,9\]"):
        expand_nodes(text)


# This machine.


def test_the_own_address_is_the_one_on_the_way_to_the_other():
    assert own_address("127.0.0.1") == "127.0.0.1"
    with pytest.raises(UserError, match="set GOSSAMER_ADDRESS"):
        own_address("no such name")


def test_two_views_of_shared_memory_are_two_hosts(monkeypatch, tmp_path):
    here = host_name()
    assert here == host_name() == Run().host and "GOSSAMER_HOST" not in Run().to_environment()
    monkeypatch.setattr(environment, "SHARED_MEMORY", environment.Path("/proc"))  # another file system
    assert host_name() != here


@pytest.mark.parametrize("text", ["My_Job 3!", "---", "ä", "x" * 80, "A" * 39 + "--b"])
def test_any_text_makes_a_name_of_a_run(text):
    assert environment.RUN_ID.fullmatch(to_run_id(text))
