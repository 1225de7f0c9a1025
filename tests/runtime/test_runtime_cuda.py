"""Agents whose parameters live on a GPU: messages leave and arrive beside its work, and say the same."""

import pytest
import torch

import gossamer as gm
from engines import CORE, assert_engines_agree
from fleet import in_threads
from worlds import World

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


@pytest.mark.parametrize("text", CORE)
def test_on_a_gpu_agents_in_lock_step_go_where_the_simulator_goes(text):
    assert_engines_agree(World(n=4, d=3, num_steps=30, kind="fixed", largest=4, seed=3), text, device="cuda")


def test_on_a_gpu_momentum_and_decay_too():
    world = World(n=3, d=4, num_steps=30, kind="fixed", largest=4, seed=4)
    assert_engines_agree(world, "pc-asgd", device="cuda", momentum=0.9, nesterov=True, weight_decay=1e-2)


@pytest.mark.parametrize("precision", [torch.float16, torch.bfloat16])
def test_mixed_precision_with_a_grad_scaler_trains_together(precision):
    def work(agent):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4)).cuda()
        optimizer = gm.optim.Decentralized(net.parameters(), lr=0.1, momentum=0.9, algorithm="dm-asgd", agent=agent)
        scaler = torch.amp.GradScaler("cuda", init_scale=2.0**20)  # which overflows at first
        x = torch.randn(256, 32, device="cuda")
        y = (x[:, 0] > 0).long()
        for _ in range(150):
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=precision):
                loss = torch.nn.functional.cross_entropy(net(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        return float(loss.detach()), torch.cat([p.detach().flatten() for p in net.parameters()]).cpu(), optimizer.last

    results = in_threads(gm.network("complete:2"), work, transport="shared")
    (loss0, x0, last0), (loss1, x1, _) = results
    assert max(loss0, loss1) < 0.2
    assert float((x0 - x1).norm()) < 0.2 * float(x0.norm())
    assert last0.ages and min(last0.ages.values()) >= 0
