import json

import pytest
import torch

import gossamer as gm
from command import files_under

# What is wrong, the arguments, and what the line must say. Files are those of the fixture.
REFUSALS = {
    "unknown algorithm": ("train --algorithm pc-asdg", "unknown algorithm 'pc-asdg'; did you mean 'pc-asgd'?"),
    "unknown algorithm, compared": ("compare -a sync,pc-asdg", "did you mean 'pc-asgd'?"),
    "unknown algorithm, listed": ("algorithms d-asg", "did you mean 'd-asgd'?"),
    "unknown network": ("train --network rign:8", "unknown network 'rign'; did you mean 'ring'?"),
    "unknown network, shown": ("network rign:8", "did you mean 'ring'?"),
    "garbled network": ("train --network torus:4x", "cannot read network 'torus:4x'; write it like torus:4x4"),
    "unknown task": ("train --task digit", "unknown task 'digit'; did you mean 'digits'?"),
    "unknown model": ("train --model linaer", "unknown model 'linaer'; did you mean 'linear'?"),
    "impossible model": ("train --model mlp:0", "width 0; use 1 or more"),
    "unknown partition": ("train --partition dirichelt:1", "did you mean 'dirichlet'?"),
    "unknown preset": ("train --preset papr", "unknown preset 'papr'; did you mean 'paper'?"),
    "unknown preset, compared": ("compare --preset papr", "did you mean 'paper'?"),
    "unknown schedule": ("train --schedule cosin", "unknown schedule 'cosin'; did you mean 'cosine'?"),
    "unknown schedule behind a warmup": ("train --schedule cosin --warmup 1", "did you mean 'cosine'?"),
    "milestone at 0": ("train --schedule step:0", "milestone 0.0; use a share of the run or an epoch above 0"),
    "milestone in words": ("train --schedule step:half", "milestone must be a number, got 'half'"),
    "unknown mixing": ("train --mixing unifrom", "unknown mixing of a run 'unifrom'; did you mean 'uniform'?"),
    "unknown init": ("train --init comon", "did you mean 'common'?"),
    "unknown dtype": ("train --dtype float16", "choose one of: float32, float64"),
    "unknown delay": ("train --delay unifrom:1,2", "unknown delay 'unifrom'; did you mean 'uniform'?"),
    "delay without numbers": ("train --delay uniform:1", "write it like uniform:5,60"),
    "negative delay": ("train --delay -3", "must be 0 steps or more, got -3"),
    "option of another algorithm": ("train --algorithm d-asgd --theta pv", "d-asgd has no option 'theta'"),
    "option of none compared": ("compare -a sync,d-asgd --theta pv", "none of sync, d-asgd has the option 'theta'"),
    "unknown option in text": ("compare -a pc-asgd/thta=pv", "'thta'; did you mean 'theta'?"),
    "option without a value": ("compare -a pc-asgd/theta", "write NAME/OPTION=VALUE"),
    "unknown choice": ("train --criterion descnt", "did you mean 'descent'?"),
    "unknown theta": ("train --theta pvv", "unknown theta 'pvv'; did you mean 'pv'?"),
    "unknown flag": ("train --epoch-count 3", "No such option: --epoch-count"),
    "misspelt flag": ("train --netwrok ring:8", "--network"),
    "flag without a value": ("train --epochs", "'--epochs' requires an argument"),
    "unknown command": ("trian", "Did you mean 'train'?"),
    "clusters of a wrong sum": ("train --clusters 3,4", "add up to 7 but the network has 8 agents"),
    "overlapping clusters": ("train --clusters 0,1,2/2,3,4,5,6,7", "agent 2 is in more than one cluster"),
    "empty cluster": ("train --clusters 8,0", "leave empty clusters out"),
    "empty group": ("train --clusters 0,1,2,3//4,5,6,7", "whole number, got ''"),
    "agent in no cluster": ("train --clusters 0,1,2/3,4,5,6", "agent 7 is in no cluster"),
    "agent out of range": ("train --clusters 0,1,2/3,4,5,6,7,8", "numbered 0 to 7"),
    "delay longer than the run": ("train --epochs 2 --delay 24", "24 steps is no shorter than the run of 24 steps"),
    "delay in epochs longer than the run": ("train --epochs 2 --delay 2 --delay-unit epoch", "a delay of 24 steps"),
    "disconnected random graph": ("train --network random:20,p=0.01", "must be connected"),
    "disconnected file": ("train --network file:parts.json", "must be connected"),
    "missing network file": ("train --network file:none.json", "'none.json' does not exist"),
    "truncated network file": ("train --network file:cut.json", "is not readable JSON"),
    "negative lr": ("train --lr -0.1", "lr must lie above 0 and be at most 1e+38, got -0.1"),
    "nan as lr": ("train --lr nan", "lr must lie above 0 and be at most 1e+38, got nan"),
    "lr beyond float32": ("train --lr 1e60", "be at most 1e+38, got 1e+60"),
    "infinite lr": ("train --lr inf", "got inf"),
    "lr in words": ("train --lr fast", "lr must be a number, got 'fast'"),
    "negative epochs": ("train --epochs -1", "epochs must be 1 or more, got -1"),
    "no epochs": ("train --epochs 0", "epochs must be 1 or more, got 0"),
    "non-integer epochs": ("train --epochs 2.5", "epochs must be a whole number, got '2.5'"),
    "negative batch": ("train --batch -16", "batch must be 1 or more, got -16"),
    "negative momentum": ("train --momentum -0.9", "momentum must lie in [0, 1), got -0.9"),
    "momentum of 1": ("train --momentum 1", "momentum must lie in [0, 1), got 1.0"),
    "nesterov without momentum": ("train --nesterov", "nesterov needs momentum above 0"),
    "negative weight decay": ("train --weight-decay -1", "weight decay must be 0 or more"),
    "mixed gradient with momentum": ("train --gradient-at mixed --momentum 0.9", "needs plain SGD"),
    "negative warmup": ("train --warmup -1", "warmup must be 0 epochs or more"),
    "negative loss": ("train --loss -0.1", "loss must lie in [0, 0.99], got -0.1"),
    "loss of 1": ("train --loss 1", "loss must lie in [0, 0.99], got 1.0"),
    "nan as loss": ("train --loss nan", "loss must lie in [0, 0.99], got nan"),
    "theta above 1": ("train --theta 1.5", "theta must lie in [0, 1], got 1.5"),
    "theta below 0": ("train --theta -0.1", "theta must lie in [0, 1], got -0.1"),
    "nan as theta": ("train --theta nan", "theta must lie in [0, 1], got nan"),
    "negative lambda": ("train --lam -1", "lam must be 0 or more"),
    "no threads": ("train --threads 0", "threads must be 1 or more, got 0"),
    "too many threads": ("train --threads 100000", "threads must be at most 1024, got 100000; use auto or 1"),
    "negative seed": ("train --seed -1", "seed must be 0 or more, got -1"),
    "negative evaluation": ("train --eval-every -1", "eval_every must be 0 or more"),
    "shares for other agents": ("train --partition shares:1,2", "2 shares for 8 agents"),
    "nan as a share": ("train --partition shares:nan,1,1,1,1,1,1,1", "one positive number an agent"),
    "infinite share": ("train --partition shares:inf,1,1,1,1,1,1,1", "one positive number an agent"),
    "no classes": ("train --partition classes:0", "needs a number above 0"),
    "negative alpha": ("train --partition dirichlet:-1", "needs a number above 0"),
    "more agents than data": ("train --network ring:2000", "2000 agents cannot share 1438 examples"),
    "no such device": ("train --device warp", "device 'warp' is not available here; use cpu"),
    "missing trace": ("train --delay trace:none.csv", "cannot read trace 'none.csv'"),
    "trace that is a folder": ("train --delay trace:.", "cannot read trace '.'"),
    "truncated trace": ("train --delay trace:cut.csv", "line 3 has 3 of 4 values"),
    "foreign trace": ("train --delay trace:foreign.csv", "its first line must be step,from,to,delay"),
    "binary trace": ("train --delay trace:binary.csv", "is not text"),
    "empty trace": ("train --delay trace:empty.csv", "its first line must be"),
    "trace of other agents": ("train --delay trace:agents.csv", "names 0->9, which is no link among the 8 agents"),
    "missing matrix": ("train --delay matrix:none.csv", "cannot read delay matrix 'none.csv'"),
    "matrix of a wrong size": ("train --delay matrix:small.csv", "shape (2, 2) but the network has 8 agents"),
    "matrix in words": ("train --delay matrix:foreign.csv", "is no delay matrix"),
    "foreign matrix": ("train --delay matrix:foreign.npy", "is no delay matrix"),
    "missing config": ("train none.toml", "cannot read settings 'none.toml'"),
    "folder as config": ("train .", "cannot read settings '.'"),
    "broken TOML": ("train broken.toml", "is not valid TOML"),
    "binary TOML": ("train binary.csv", "is not valid TOML"),
    "unknown key in TOML": ("train key.toml", "unknown setting 'epocs'; did you mean 'epochs'?"),
    "unknown table in TOML": ("train table.toml", "'option'; did you mean 'options'?"),
    "options that are no table": ("train number.toml", "options in 'number.toml' must be a table, got 3"),
    "wrong type in TOML": ("train type.toml", "lr must be a number, got '[0.1]'"),
    "no seeds": ("compare --seeds 0", "seeds must be 1 or more, got 0"),
    "seeds in words": ("compare --seeds many", "--seeds"),
    "no seeds in the demo": ("demo --seeds 0", "seeds must be 1 or more, got 0"),
    "no algorithms": ("compare --algorithms=", "no algorithm is given"),
    "an algorithm twice": ("compare -a sync,sync", "'sync' is named twice"),
    "run folder in a file": ("train --epochs 2 --delay 5 --out broken.toml/run", "cannot create 'broken.toml/run'"),
    "report folder in a file": ("compare --out broken.toml/report", "cannot create 'broken.toml/report'"),
    "nothing to resume": ("train --resume none", "'none' is not a run folder"),
    "network saved as text": ("network ring:8 --save net.txt", "give a name that ends in .json"),
    "network saved over a file": ("network ring:8 --save parts.json", "'parts.json' already exists"),
    "network saved nowhere": ("network ring:8 --save none/net.json", "cannot write 'none/net.json'"),
    "picture as text": ("network ring:8 --picture net.txt", "ends in .png or .svg or .pdf"),
    "unknown network, compared": ("compare --network rign:8", "did you mean 'ring'?"),
    "delay longer than the runs": ("compare --epochs 1 --delay 12", "no shorter than the run of 12 steps"),
    "picture nowhere": ("network ring:8 --picture none/net.png", "none/net.png"),
    "picture refused after saving": ("network ring:8 --save net.json --picture net.txt", "ends in .png"),
    "negative seed of discovery": ("network ring:8 --discover --seed -1", "seed"),
    "device without data": ("train --device meta", "device 'meta' is not available here"),
    "device without a module": ("train --device hpu", "device 'hpu' is not available here"),
    "delay beyond all numbers": ("train --delay trace:large.csv", "large.csv"),
    "nan as gamma": ("train --schedule step:0.5,gamma=nan", "gamma"),
    "negative gamma": ("train --schedule step:0.5,gamma=-1", "gamma"),
    "nan as milestone": ("train --schedule step:nan", "milestone"),
    "parameter of a partition without any": ("train --partition iid:5", "iid:5"),
    "parameter of a model without any": ("train --model linear:5", "linear:5"),
}


@pytest.fixture
def folder(folder):
    """The present folder, with one file of every wrong kind."""
    texts = {
        "parts.json": '{"agents": 4, "links": [[0, 1], [2, 3]]}',
        "cut.json": '{"agents": 4, "links": [[0, 1',
        "cut.csv": "step,from,to,delay\n0,0,1,5\n0,1,0\n",
        "foreign.csv": "name,age\nAda,36\n",
        "empty.csv": "",
        "agents.csv": "step,from,to,delay\n0,0,9,5\n",
        "large.csv": f"step,from,to,delay\n0,0,1,{10**30}\n",
        "small.csv": "0,5\n5,0\n",
        "broken.toml": "lr = \n",
        "key.toml": "epocs = 3\n",
        "table.toml": "[option]\ntheta = 0.3\n",
        "number.toml": "options = 3\n",
        "type.toml": "lr = [0.1]\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "binary.csv").write_bytes(b"\xff\xfe\x00\x01")
    (folder / "foreign.npy").write_bytes(b"no array")
    return folder


@pytest.mark.parametrize(
    ("line", "says"),
    [pytest.param(*row, id=name) for name, row in REFUSALS.items()],
)
def test_a_mistake_is_one_line_with_status_2_and_touches_no_file(folder, command, line, says):
    before = files_under(folder)
    assert says in command.refused(*line.split())
    assert files_under(folder) == before


def test_cuda_is_refused_where_there_is_none(folder, command, monkeypatch):
    really_zeros = torch.zeros

    def zeros(*size, **settings):
        if settings.get("device") == "cuda":
            raise AssertionError("Torch not compiled with CUDA enabled")
        return really_zeros(*size, **settings)

    monkeypatch.setattr(torch, "zeros", zeros)
    assert "device 'cuda' is not available here; use cpu" in command.refused("train", "--device", "cuda")


def test_no_command_at_all_gives_the_help(command):
    assert "Commands" in command.well().out


def test_an_unknown_setting_of_simulate_is_refused_with_the_nearest():
    with pytest.raises(gm.UserError, match="'epocs'; did you mean 'epochs'"):
        gm.simulate(epocs=3)
    with pytest.raises(gm.UserError, match="give options of the algorithm to gm"):
        gm.simulate(algorithm=gm.algorithm("pc-asgd"), theta=0.5)


def test_a_bad_network_document_is_refused_in_one_line(folder, command):
    (folder / "clusters.json").write_text(json.dumps({"agents": 2, "links": [[0, 1]], "clusters": [[0], [0, 1]]}))
    assert "more than one cluster" in command.refused("network", "file:clusters.json")
