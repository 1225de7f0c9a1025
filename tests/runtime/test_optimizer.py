"""gm.optim.Decentralized is a torch.optim.Optimizer: what users do with one works."""

import copy

import pytest
import torch

import gossamer as gm
from fleet import in_threads


def alone(**run):
    return gm.join({}, **run)


def model(seed=0, norm=False):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        middle = [torch.nn.BatchNorm1d(8)] if norm else []
        return torch.nn.Sequential(torch.nn.Linear(4, 8), *middle, torch.nn.Tanh(), torch.nn.Linear(8, 3))


def batch(t):
    g = torch.Generator().manual_seed(t)
    return torch.randn(16, 4, generator=g), torch.randint(0, 3, (16,), generator=g)


def loss_of(net, t):
    x, y = batch(t)
    return torch.nn.functional.cross_entropy(net(x), y)


def flat(net):
    return torch.cat([p.detach().reshape(-1) for p in net.parameters()])


def train(net, optimizer, steps, scheduler=None, clip=None, start=0):
    for t in range(start, start + steps):
        optimizer.zero_grad()
        loss_of(net, t).backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(net.parameters(), clip)
        optimizer.step()
        if scheduler:
            scheduler.step()


LOCAL = [
    {},
    {"momentum": 0.9},
    {"momentum": 0.9, "nesterov": True, "weight_decay": 1e-2},
    {"weight_decay": 1e-2},
]


@pytest.mark.parametrize("local", LOCAL)
def test_alone_it_is_torchs_sgd(local):
    ours, theirs = model(), model()
    train(ours, gm.optim.Decentralized(ours.parameters(), lr=0.1, agent=alone(), **local), 20, clip=0.5)
    train(theirs, torch.optim.SGD(theirs.parameters(), lr=0.1, **local), 20, clip=0.5)
    torch.testing.assert_close(flat(ours), flat(theirs))


def groups(net):
    return [
        {"params": net[0].parameters(), "lr": 0.2, "momentum": 0.5},
        {"params": net[2].parameters(), "weight_decay": 0.01},
    ]


def test_param_groups_have_rates_momentum_and_decay_of_their_own():
    ours, theirs = model(), model()
    train(ours, gm.optim.Decentralized(groups(ours), lr=0.05, agent=alone()), 15)
    train(theirs, torch.optim.SGD(groups(theirs), lr=0.05), 15)
    torch.testing.assert_close(flat(ours), flat(theirs))


@pytest.mark.parametrize("several", [False, True])
def test_learning_rate_schedulers_work(several):
    nets = model(), model()
    optimizers = [
        gm.optim.Decentralized(groups(nets[0]) if several else nets[0].parameters(), lr=0.1, agent=alone()),
        torch.optim.SGD(groups(nets[1]) if several else nets[1].parameters(), lr=0.1),
    ]
    for net, optimizer in zip(nets, optimizers, strict=True):
        train(
            net,
            optimizer,
            12,
            torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.3, total_steps=13, cycle_momentum=several),
        )
    torch.testing.assert_close(*map(flat, nets))


def test_a_closure_is_called_and_its_loss_returned():
    net = model()
    optimizer = gm.optim.Decentralized(net.parameters(), lr=0.1, agent=alone())
    calls = []

    def closure():
        optimizer.zero_grad()
        loss = loss_of(net, 0)
        loss.backward()
        calls.append(loss.item())
        return loss

    returned = optimizer.step(closure)
    assert returned.item() == calls[0] and len(calls) == 1
    assert loss_of(net, 0).item() < calls[0]


def test_the_grad_scaler_skips_steps_that_overflow():
    net = model()
    optimizer = gm.optim.Decentralized(net.parameters(), lr=0.1, agent=alone())
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**8)
    reference = model()
    train(reference, torch.optim.SGD(reference.parameters(), lr=0.1), 3)
    for t in range(3):
        optimizer.zero_grad()
        scaler.scale(loss_of(net, t)).backward()
        scaler.step(optimizer)
        scaler.update()
    torch.testing.assert_close(flat(net), flat(reference))
    before = flat(net)
    optimizer.zero_grad()
    (scaler.scale(loss_of(net, 3)) * torch.inf).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(flat(net), before) and optimizer.steps_done == 3


def test_a_state_dict_goes_on_where_it_was_taken():
    net = model()
    optimizer = gm.optim.Decentralized(net.parameters(), lr=0.1, momentum=0.9, agent=alone())
    train(net, optimizer, 5)
    saved = copy.deepcopy((net.state_dict(), optimizer.state_dict()))
    train(net, optimizer, 5, start=5)
    other = model(seed=1)
    resumed = gm.optim.Decentralized(other.parameters(), lr=0.3, momentum=0.9, agent=alone())
    other.load_state_dict(saved[0])
    resumed.load_state_dict(saved[1])
    assert resumed.steps_done == 5 and resumed.param_groups[0]["lr"] == 0.1
    train(other, resumed, 5, start=5)
    assert torch.equal(flat(other), flat(net))


def test_a_plain_torch_optimizers_state_can_be_loaded():
    net, other = model(), model()
    sgd = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    train(net, sgd, 4)
    ours = gm.optim.Decentralized(other.parameters(), lr=0.1, momentum=0.9, agent=alone())
    other.load_state_dict(net.state_dict())
    ours.load_state_dict(copy.deepcopy(sgd.state_dict()))
    train(net, sgd, 4, start=4)
    train(other, ours, 4, start=4)
    torch.testing.assert_close(flat(other), flat(net))


def test_batch_norm_stays_local_unless_its_buffers_are_given():
    def work(mixed):
        def run(agent):
            net = model(norm=True)
            given = {"buffers": net.buffers()} if mixed else {}
            optimizer = gm.optim.Decentralized(net.parameters(), lr=0.1, algorithm="sync", agent=agent, **given)
            for t in range(8):
                optimizer.zero_grad()
                x, y = batch(t)
                torch.nn.functional.cross_entropy(net(x + 3 * agent.rank), y).backward()
                optimizer.step()
            return net[1].running_mean.clone(), flat(net)

        return run

    network = gm.network("complete:2")
    for mixed in (False, True):
        (mean0, x0), (mean1, x1) = in_threads(network, work(mixed), lockstep=True)
        apart = float((mean0 - mean1).norm())
        assert (apart < 1e-4) if mixed else (apart > 0.1)
        assert float((x0 - x1).norm()) < 0.1 * float(x0.norm())


def test_rules_that_evaluate_elsewhere_ask_for_a_closure_in_one_line():
    net = model()
    optimizer = gm.optim.Decentralized(
        net.parameters(), lr=0.1, algorithm="pc-asgd", theta="pv", criterion="loss", agent=alone()
    )
    loss_of(net, 0).backward()
    with pytest.raises(gm.UserError, match=r"optimizer\.step\(closure\)"):
        optimizer.step()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda o: o.add_param_group({"params": [torch.nn.Parameter(torch.zeros(2))]}), "all param groups"),
        (lambda o: (o.param_groups[0].update(momentum=0.9), o.step()), "plain SGD"),
    ],
)
def test_what_agents_have_agreed_on_cannot_be_changed(change, message):
    net = model()
    optimizer = gm.optim.Decentralized(net.parameters(), lr=0.1, agent=alone())
    with pytest.raises(gm.UserError, match=message):
        change(optimizer)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr": -1.0}, "lr must be 0 or more, got -1.0"),
        ({"lr": 0.1, "momentum": 1.5}, "momentum must lie in"),
        ({"lr": 0.1, "algorithm": "pc-asdg"}, "did you mean 'pc-asgd'"),
        ({"lr": 0.1, "algorithm": "pc-asgd", "theta": 2}, "theta must lie in"),
        ({"lr": 0.1, "algorithm": "pc-asgd", "theta": "pv", "scope": "network"}, "simulator"),
        ({"lr": 0.1, "algorithm": "asgd", "momentum": 0.9}, "plain SGD"),
    ],
)
def test_mistakes_are_told_in_one_line(arguments, message):
    with pytest.raises(gm.UserError, match=message) as caught:
        gm.optim.Decentralized(model().parameters(), agent=alone(), **arguments)
    assert "\n" not in str(caught.value)


def test_mixed_types_are_refused():
    parameters = [torch.nn.Parameter(torch.zeros(2)), torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))]
    with pytest.raises(gm.UserError, match="one type and device"):
        gm.optim.Decentralized(parameters, lr=0.1, agent=alone())
