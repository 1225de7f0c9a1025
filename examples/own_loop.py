"""Your own training loop. Two lines make it decentralised: `gm.join()` and `gm.optim.Decentralized`.

    gossamer launch --network clusters:2,2 --algorithm pc-asgd/theta=pv examples/own_loop.py
    python examples/own_loop.py          # the same script alone: one agent, plain SGD
"""

import torch
from sklearn.datasets import load_digits

import gossamer as gm

STEPS, BATCH = 300, 16

agent = gm.join()  # rank, neighbours and links, from the launcher's environment
torch.manual_seed(agent.run.seed)  # the same initial model for all agents

x, y = load_digits(return_X_y=True)
x, y = torch.tensor(x, dtype=torch.float32) / 16, torch.tensor(y)
mine = slice(agent.rank, 1500, agent.num_agents)  # each agent has its own part of the training data
x_train, y_train, x_test, y_test = x[mine], y[mine], x[1500:], y[1500:]

model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))
optimizer = gm.optim.Decentralized(model.parameters(), lr=0.1, momentum=0.5, agent=agent)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
draws = torch.Generator().manual_seed(agent.rank)

while optimizer.steps_done < STEPS:  # a restarted agent continues at its neighbours' step
    batch = torch.randint(len(x_train), (BATCH,), generator=draws)
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x_train[batch]), y_train[batch])
    loss.backward()
    optimizer.step()  # publishes, mixes with what has arrived, never waits for late messages
    scheduler.step()
    agent.report(loss=loss.item())  # for the launcher's live table

with torch.no_grad():
    accuracy = (model(x_test).argmax(dim=1) == y_test).float().mean().item()
print(f"agent {agent.rank}: {100 * accuracy:.1f} % after {optimizer.steps_done} steps")
agent.close()
