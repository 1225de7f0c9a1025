"""`gm.optim.Decentralized`: a torch.optim.Optimizer whose step also mixes with the neighbours, without waiting."""

import inspect
from collections.abc import Iterable
from typing import Any

import torch

from gossamer.algorithms import Algorithm, parse_algorithm
from gossamer.algorithms import algorithm as make_algorithm
from gossamer.errors import UserError
from gossamer.runtime.agent import Agent, StepResult, join
from gossamer.runtime.flat_model import Closure, Evaluations, FlatTensors
from gossamer.runtime.node import Node
from gossamer.shapes import Float, Tensor
from gossamer.state.local import LocalOptimizer

REJOIN_WAIT = 5.0  # seconds that a restarted agent waits for a neighbour's state
KEPT_HERE = "gossamer"  # our entry of a state_dict


class _Light(torch.optim.Optimizer):
    """torch's optimiser, whose bookkeeping does not import torch.compile's compiler: 1.6 s of every agent's start."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Optimizer.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Optimizer.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Optimizer.load_state_dict)


class Decentralized(_Light):
    """SGD with momentum and weight decay as torch.optim.SGD defines it, and a rule that mixes with the neighbours.

    A step publishes this agent's message, takes the newest messages of its neighbours, however old, and applies the
    rule. Parameters, learning rates, momentum and weight decay may differ between param groups;
    learning-rate schedulers, gradient clipping, AMP's GradScaler, closures and state_dict work as with any optimiser.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        *,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
        algorithm: str | Algorithm | None = None,
        agent: Agent | None = None,
        buffers: Iterable[Tensor] = (),
        share: float = 1.0,
        rejoin: bool = True,
        **options: Any,
    ) -> None:
        """Take a model's parameters.

        Args:
            params: parameters or groups of them, as for every optimiser.
            lr: learning rate; like momentum, nesterov and weight_decay, a group may have its own.
            momentum: of the local direction.
            nesterov: look ahead along the momentum.
            weight_decay: added to the local direction, never to a rule's curvature estimate.
            algorithm: a name such as "pc-asgd", a text with options, an object, or None for the launcher's choice.
            agent: what `gm.join()` returned; None joins now.
            buffers: BatchNorm statistics to mix like parameters (model.buffers()); local by default.
            share: the size of this agent's data over the mean size.
            rejoin: continue a restarted agent from a neighbour's newest state, unless a checkpoint is loaded.
            **options: of the algorithm, such as theta="pv".
        """
        LocalOptimizer(momentum=momentum, nesterov=nesterov, weight_decay=weight_decay)  # checks the ranges
        if not lr >= 0:
            raise UserError(f"lr must be 0 or more, got {lr}; use for example 0.05")
        defaults = {"lr": lr, "momentum": momentum, "nesterov": nesterov, "weight_decay": weight_decay}
        super().__init__(params, defaults)
        self.agent = agent or join()
        self._plain = self._is_plain()
        self.algorithm = _rule(algorithm or self.agent.algorithm, options)
        self.last: StepResult | None = None  # what the last step did
        mixed_buffers = [buffer for buffer in buffers if buffer.is_floating_point()]
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        self._flat = FlatTensors([*parameters, *mixed_buffers])
        self._num_parameters = len(parameters)
        self._x, self._g, self._v = self._flat.empty(), self._flat.empty(), self._flat.empty()
        self.agent.attach(self)
        self.node = Node(
            self.agent,
            self.algorithm,
            self._flat.gather(self._x),
            segments=self._flat.segments,
            plain=self._plain,
            momentum=self._momentum,
            share=share,
        )
        self.agent.on_close(self.node.close)
        self.adopted = rejoin and self.agent.returns and self._adopt()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group during construction; later it would change the messages."""
        if hasattr(self, "node"):
            raise UserError("agents have agreed on their parameters; pass all param groups when the optimizer is made")
        super().add_param_group(param_group)

    def _is_plain(self) -> bool:
        """Say whether the direction is the gradient, and stays so: one rate for all, no momentum and no decay."""
        groups = self.param_groups
        return len(groups) == 1 and not (groups[0]["momentum"] or groups[0]["weight_decay"])

    @property
    def _momentum(self) -> float:
        return max(float(group["momentum"]) for group in self.param_groups)

    @property
    def steps_done(self) -> int:
        """The iterations of this agent, those before a restart included."""
        return self.node.t

    @torch.no_grad()
    def step(self, closure: Closure | None = None, *, fresh: Closure | None = None) -> Any:
        """Take one step; with a closure, evaluate the model first, and return its loss.

        Rules that evaluate the model at other points call the closure again; those that ask for another batch call
        `fresh`, a closure that takes a new batch each time.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        evaluate = Evaluations(self._flat, self._num_parameters, closure, fresh)
        evaluate.check(self.algorithm)
        x, g = self._flat.gather(self._x), self._gradients()
        lr = max(float(group["lr"]) for group in self.param_groups)
        momentum = self._momentum
        nesterov = any(group["nesterov"] for group in self.param_groups)
        done = self.node.step(x, g, self._directions(x, g, lr), lr, evaluate, momentum, nesterov)
        self._flat.scatter(done.x)
        self.last = done
        self.agent.note(done, self.node.t, None if loss is None else float(torch.as_tensor(loss).detach()))
        return loss

    def _gradients(self) -> Float[Tensor, "1 d"]:
        """Return the gradients as one row; buffers have none."""
        tensors = self._flat.tensors
        return self._flat.gather(
            self._g, [tensor.grad if place < self._num_parameters else None for place, tensor in enumerate(tensors)]
        )

    def _directions(self, x: Float[Tensor, "1 d"], g: Float[Tensor, "1 d"], lr: float) -> Float[Tensor, "1 d"]:
        """Return each group's local direction, times its learning rate over the largest."""
        if self._plain and self._is_plain():
            return g
        if self._plain:
            raise UserError(
                "momentum or weight decay was set after the agents had agreed on plain SGD; pass it when the optimizer "
                "is made"
            )
        places = self._flat.views(self._v.copy_(g))
        gradients, values = self._flat.views(g), self._flat.views(x)
        at = 0
        for group in self.param_groups:
            local = LocalOptimizer(
                momentum=float(group["momentum"]),
                nesterov=bool(group["nesterov"]),
                weight_decay=float(group["weight_decay"]),
            )
            for parameter in group["params"]:
                if parameter.grad is None:  # frozen or unused: no decay, no momentum
                    places[at].zero_()
                    at += 1
                    continue
                state = self.state[parameter]
                v, memory = local.direction(gradients[at], values[at], state.get("momentum_buffer"))
                if memory is not None:
                    state["momentum_buffer"] = memory
                places[at].copy_(v if group["lr"] == lr else v * (group["lr"] / lr))
                at += 1
        return self._v

    def _adopt(self) -> bool:
        """Take a neighbour's newest state and iteration; say whether one was found."""
        found = self.node.newest_state(REJOIN_WAIT)
        if found is not None:
            x, step = found
            self._flat.scatter(x)
            self.node.state = self.algorithm.start(x, self.node.place)  # as at the start of a run
            self.node.begin_at(step)
        return found is not None

    def state_dict(self) -> dict[str, Any]:
        """Return torch's entries and the rule's state."""
        return {**super().state_dict(), KEPT_HERE: self.node.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; a torch.optim.SGD's fits too."""
        given = dict(state_dict)
        kept = given.pop(KEPT_HERE, None)
        super().load_state_dict(given)
        if kept is not None:
            self.node.load_state_dict(kept)


def _rule(algorithm: str | Algorithm, options: dict[str, Any]) -> Algorithm:
    if isinstance(algorithm, Algorithm):
        if options:
            raise UserError(f"'{min(options)}' is an option of the algorithm object that was given; set it there")
        return algorithm
    name, in_text = parse_algorithm(algorithm)
    return make_algorithm(name, **{**in_text, **options})
