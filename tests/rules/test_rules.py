"""Every rule against the slow truth of oracle.py, on any graph and under any delay."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import gossamer as gm
import oracle
from gossamer.algorithms import algorithm_names
from gossamer.engine.trajectory import FunctionSource
from spies import calls, row_of
from worlds import World, algorithm_from, assert_same_path, few, many, some, worlds

# ---- the rules


@many
@given(worlds())
def test_synchronous_sgd_hears_everyone_at_once_whatever_the_delay(world):
    links = world.network.links.numpy()
    truth = world.truth("sync", delays=lambda t: np.where(links, 0, -1))
    assert_same_path(world.path(gm.algorithm("sync")), truth)


@many
@given(worlds())
def test_d_asgd_mixes_late_states_as_they_are(world):
    assert_same_path(world.path(gm.algorithm("d-asgd")), world.truth("d_asgd"))


@many
@given(worlds())
def test_c_asgd_mixes_current_states_only(world):
    assert_same_path(world.path(gm.algorithm("c-asgd")), world.truth("c_asgd"))


@many
@given(worlds(), st.sampled_from([0.0, 0.3, 1.0]))
def test_p_asgd_carries_late_states_forward(world, lam):
    assert_same_path(world.path(gm.algorithm("p-asgd", lam=lam)), world.truth("p_asgd", lam=lam))


@many
@given(worlds(), st.floats(0, 1))
def test_pc_asgd_weighs_both_steps_by_theta(world, theta):
    assert_same_path(world.path(gm.algorithm("pc-asgd", theta=theta)), world.truth("pc_asgd", theta=theta))


@many
@given(worlds(), st.sampled_from(["auto", "undamped", "damped", "critical", 0.05, 0.3]))
@pytest.mark.filterwarnings("ignore::gossamer.StabilityWarning")
def test_dm_asgd_adds_matched_differences(world, gain):
    assert_same_path(world.path(gm.algorithm("dm-asgd", gain=gain)), world.truth("dm_asgd", gain=gain))


# ---- the options of the compensation

COMPENSATIONS = [
    *({"horizon": name} for name in ("sum", "mean", "last", "none", "public-code")),
    *({"lam_form": name, "lam": 0.7} for name in ("linear", "squared", "adaptive")),
    *({"self_consistent": True, "lam_form": name, "lam": 0.7} for name in ("linear", "squared", "adaptive")),
    {"self_consistent": True, "lam": 0.0},
    {"horizon": "mean", "lam": 0.0},
    {"horizon": "last", "curvature": "coupled"},
]


@pytest.mark.parametrize("options", COMPENSATIONS, ids=str)
@some
@given(worlds())
def test_every_compensation_follows_its_equation(options, world):
    assert_same_path(world.path(gm.algorithm("p-asgd", **options)), world.truth("p_asgd", **options))


def test_public_code_without_curvature_compensates_nothing():
    world = World(n=5, d=3, num_steps=12)
    options = {"horizon": "public-code", "lam": 0.0}
    assert_same_path(world.path(gm.algorithm("p-asgd", **options)), world.truth("p_asgd", **options))


def plain_rule(name: str) -> tuple[gm.Algorithm, dict[str, float]]:
    """The rule, and the options of its oracle: pc-asgd with a given theta; test_theta_auto.py has the default."""
    options = {"theta": 0.3} if name == "pc-asgd" else {}
    return gm.algorithm(name, **options), options


LOCALS = [
    {"momentum": 0.9},
    {"momentum": 0.5, "nesterov": True},
    {"weight_decay": 0.1},
    {"momentum": 0.6, "nesterov": True, "weight_decay": 0.05},
]


@pytest.mark.parametrize("local", LOCALS, ids=str)
@few
@given(worlds(), st.sampled_from(["loss", "coupled"]), st.booleans())
def test_the_local_optimiser_enters_messages_and_curvature_as_declared(local, world, curvature, self_consistent):
    options = {"curvature": curvature, "self_consistent": self_consistent}
    path = world.path(gm.algorithm("p-asgd", **options), **local)
    assert_same_path(path, world.truth("p_asgd", **local, **options))


@pytest.mark.parametrize("name", ["sync", "d-asgd", "c-asgd", "pc-asgd", "dm-asgd"])
@few
@given(worlds(), st.sampled_from(LOCALS))
def test_every_rule_steps_along_the_local_optimisers_direction(name, world, local):
    rule, options = plain_rule(name)
    links = world.network.links.numpy()
    if name == "sync":
        options["delays"] = lambda t: np.where(links, 0, -1)
    assert_same_path(world.path(rule, **local), world.truth(name.replace("-", "_"), **local, **options))


# ---- other readings of the paper


@pytest.mark.parametrize("options", [{}, {"horizon": "last"}, {"self_consistent": True}, {"lam": 0.0}], ids=str)
@few
@given(worlds())
def test_recomputed_gradients_are_the_receivers_own_at_the_senders_state(options, world):
    def rule(view, **more):
        late = {}
        for k, message in view.late.items():
            g = world.smooth.one(view.i, message.x, view.t)
            late[k] = replace(message, g=g, v=g)
        return oracle.p_asgd(replace(view, late=late), **options, **more)

    algorithm = gm.algorithm("p-asgd", source="recompute", **options)
    assert algorithm.message == ("x",)
    assert_same_path(world.path(algorithm), world.truth(rule))


def at_mixed(world: World, name: str, view: oracle.View) -> np.ndarray:
    """The rule with v = 0, less eta times the gradient at the point where its mixing alone leads."""
    still = replace(view, v=np.zeros_like(view.v))

    def descend(new, mixed):
        return new - view.lr * world.smooth.one(view.i, mixed, view.t)

    heard, reliable = oracle.d_asgd(still), oracle.clip(still)
    pre, cli = descend(oracle.predict(still), heard), descend(reliable, reliable)
    return {
        "sync": descend(heard, heard),
        "d-asgd": descend(heard, heard),
        "c-asgd": cli,
        "p-asgd": pre if view.late else cli,
        "pc-asgd": 0.3 * pre + 0.7 * cli if view.late else cli,
        "dm-asgd": descend(oracle.dm_asgd(still), reliable),
    }[name]


@pytest.mark.parametrize("name", ["sync", "d-asgd", "c-asgd", "p-asgd", "pc-asgd", "dm-asgd"])
@few
@given(worlds())
def test_gradients_at_the_mixed_point_follow_the_mixing(name, world):
    links = world.network.links.numpy()
    delays = {"delays": lambda t: np.where(links, 0, -1)} if name == "sync" else {}
    truth = world.truth(lambda view: at_mixed(world, name, view), **delays)
    assert_same_path(world.path(replace(plain_rule(name)[0], gradient_at="mixed")), truth)


@pytest.mark.parametrize("name", ["d-asgd", "c-asgd", "p-asgd", "pc-asgd", "dm-asgd"])
@few
@given(worlds(kinds=("fixed",), startups=("wait", "full"), smallest=2, reliable_delay=1))
def test_reliable_neighbours_may_be_one_step_behind(name, world):
    net = world.network
    near = net.links & net.same_cluster
    step = iter(range(world.num_steps))

    def clip_of(_):
        # Until step 1 nobody has heard anything, unless the start-up pretends.
        heard = next(step) >= 1 or net.startup == "full"
        return net.clip_matrix(near if heard else torch.zeros_like(near)).numpy()

    def rule(view, **options):
        fresh = {k: message.x for k, message in view.late.items() if near[view.i, k]}
        late = {k: message for k, message in view.late.items() if not near[view.i, k]}
        truth = {"pc-asgd": lambda v: oracle.pc_asgd(v, theta=0.3)}.get(name, oracle.RULES[name.replace("-", "_")])
        return truth(replace(view, fresh=fresh, late=late))

    assert_same_path(world.path(plain_rule(name)[0]), world.truth(rule, clip_of=clip_of))


# ---- one agent at a time

ROWS = [
    *algorithm_names(),
    "p-asgd/horizon=last",
    "p-asgd/source=recompute",
    "p-asgd/self_consistent=true",
    "d-asgd/gradient_at=mixed",
    "pc-asgd/theta=uniform",
    "pc-asgd/theta=bernoulli:0.5/scope=network",
    *(f"pc-asgd/theta=pv/criterion={name}" for name in ("literal", "descent", "decrease", "loss", "public-code")),
    "pc-asgd/theta=pv/criterion=descent/granularity=tensor",
    "pc-asgd/theta=pv/test_batch=fresh",
]


@pytest.mark.parametrize("text", ROWS)
@few
@given(worlds(d=st.just(4)))
def test_one_agents_row_alone_gives_that_row_of_the_full_step(text, world):
    algorithm = algorithm_from(text)
    for call in calls(algorithm, world, segments=(2, 2)):
        for i in {0, world.n - 1}:
            update = algorithm.step(*row_of(call, i))
            torch.testing.assert_close(update.x, call.update.x[i : i + 1], rtol=1e-12, atol=1e-12)
            if call.update.predict is not None:
                expected = call.update.predict[i : i + 1]
                torch.testing.assert_close(update.predict, expected, equal_nan=True)


# ---- the loop around the rules


def test_a_common_start_is_given_to_every_agent():
    world = World(n=5, d=3, num_steps=12)
    start = world.smooth.x0[0]
    algorithm = gm.algorithm("pc-asgd")
    one = gm.trajectory(algorithm, world.network, world.smooth.gradient, start, steps=5)
    each = gm.trajectory(algorithm, world.network, world.smooth.gradient, np.tile(start, (5, 1)), steps=5)
    assert torch.equal(one, each)


def test_whole_numbers_as_a_start_become_floats():
    path = gm.trajectory(gm.algorithm("sync"), gm.network("ring:3"), lambda x, t: x, [1, 2], steps=1)
    assert path.dtype == torch.float64 and path.shape == (2, 3, 2)


@pytest.mark.parametrize(
    ("x0", "steps", "words"),
    [(np.zeros((4, 2)), 3, "x0 must be"), (np.zeros((1, 3, 2)), 3, "x0 must be"), (np.zeros((3, 2)), 0, "steps")],
)
def test_a_wrong_start_or_length_is_refused(x0, steps, words):
    with pytest.raises(gm.UserError, match=words):
        gm.trajectory(gm.algorithm("sync"), gm.network("ring:3"), lambda x, t: x, x0, steps=steps)


def test_a_gradient_of_the_wrong_shape_is_refused():
    with pytest.raises(gm.UserError, match="one row per agent"):
        FunctionSource(lambda x, t: x[0], None).gradient(torch.zeros(3, 2), 0)


def test_a_schedule_scales_the_step_and_the_compensation():
    world = World(n=5, d=3, num_steps=12)
    # Half of twelve steps at 0.05, the other half at 0.005; the truth runs in two pieces of one rule.
    path = world.path(gm.algorithm("p-asgd"), schedule="step:0.5")
    lr_at = [0.05 * (0.1 if t >= 6 else 1) for t in range(12)]
    truth = world.truth(lambda view: oracle.p_asgd(replace(view, lr=lr_at[view.t])))
    assert_same_path(path, truth)
