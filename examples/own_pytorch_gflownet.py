"""A GFlowNet in PyTorch whose gradient step is given to JAX: the smallest first step of a migration.

World, sampling and training loop stay as they were. New is what stands between the lines of dashes, and two lines of
`main`. Run it as it is: python own_pytorch_gflownet.py
"""

import time

import flax.linen as fnn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import torch
from torch import nn

from xladder import hybrid, parity

ITEMS, BATCH, ITERATIONS, NEVER = 6, 32, 300, -40.0  # the last is the logit of what is not allowed


def log_reward(bags):
    """The world: bags of items. Their worth adds up, and neighbours are worth more."""
    return (bags * torch.sin(3.0 * torch.arange(ITEMS) + 1.0)).sum(-1) + (bags[..., 1:] * bags[..., :-1]).sum(-1)


class Net(nn.Module):
    """The forward policy and log Z. The backward policy is uniform."""

    def __init__(self):
        super().__init__()
        self.trunk, self.head = nn.Linear(ITEMS, 128), nn.Linear(128, ITEMS + 1)
        self.log_z = nn.Parameter(torch.zeros(()))

    def forward(self, bags):
        """Logits of every action (take an item that is not there yet, or stop), and log Z."""
        taken = torch.cat([bags == 1, torch.zeros_like(bags[..., :1]) == 1], -1)
        return self.head(torch.relu(self.trunk(bags))).masked_fill(taken, NEVER), self.log_z


@torch.no_grad()
def sample(net):
    """Trajectories: states [B, T, ITEMS], actions [B, T], which steps are real [B, T], and log R + log P_B [B]."""
    bags, active, steps = torch.zeros(BATCH, ITEMS), torch.ones(BATCH, dtype=torch.bool), []
    for _ in range(ITEMS + 1):
        action = torch.distributions.Categorical(logits=net(bags)[0]).sample()
        steps.append((bags.clone(), action, active.clone()))
        active &= action != ITEMS
        bags[active, action[active]] = 1
    states, actions, real = (torch.stack(column, 1) for column in zip(*steps, strict=True))
    return dict(states=states, actions=actions, real=real, target=log_reward(bags) - torch.lgamma(bags.sum(-1) + 1))


def torch_loss(net, batch):
    """Trajectory balance."""
    logits, log_z = net(batch["states"])
    log_pf = logits.log_softmax(-1).gather(-1, batch["actions"][..., None])[..., 0]
    return (log_z + torch.where(batch["real"], log_pf, 0.0).sum(1) - batch["target"]).square().mean()


def torch_adam(params):
    """Adam, with a larger learning rate for log Z."""
    groups = [{"params": [p for p in params if (p.ndim == 0) == z], "lr": 0.1 if z else 3e-3} for z in (False, True)]
    return torch.optim.Adam(groups)


# ---- new -----------------------------------------------------------------------------------------------------------


class FlaxNet(fnn.Module):
    """The twin of `Net`."""

    @fnn.compact
    def __call__(self, bags):
        """Logits of every action, and log Z."""
        taken = jnp.concatenate([bags == 1, jnp.zeros_like(bags[..., :1]) == 1], -1)
        logits = fnn.Dense(ITEMS + 1)(fnn.relu(fnn.Dense(128)(bags)))
        return jnp.where(taken, NEVER, logits), self.param("log_z", fnn.initializers.zeros, ())


def jax_loss(net, batch):
    """The twin of `torch_loss`."""
    logits, log_z = net(batch["states"])
    log_pf = jnp.take_along_axis(jax.nn.log_softmax(logits), batch["actions"][..., None], -1)[..., 0]
    return jnp.mean((log_z + jnp.where(batch["real"], log_pf, 0.0).sum(1) - batch["target"]) ** 2)


jax_adam = optax.partition({True: optax.adam(0.1), False: optax.adam(3e-3)}, lambda ps: {p: p == "log_z" for p in ps})

# --------------------------------------------------------------------------------------------------------------------


def main():
    """Is it the same? Then train with either step, and see what each takes."""
    torch.manual_seed(0)
    batch, both = sample(Net()), (torch_loss, jax_loss)
    print(parity.check(Net(), FlaxNet(), batch["states"], both, (torch_adam, jax_adam), batch=batch, updates=10))
    print(f"\nlog Z is {log_reward(torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * ITEMS)).logsumexp(0):.2f}")
    for name in ("PyTorch", "JAX"):
        torch.manual_seed(1)
        net, seconds = Net(), []
        optimiser = torch_adam(list(net.parameters()))
        trainer = hybrid.JaxStep(net, FlaxNet(), jax_loss, jax_adam, inputs=batch["states"])  # new
        for _ in range(ITERATIONS):
            batch = sample(net)
            begun = time.perf_counter()
            if name == "JAX":
                trainer.step(batch)  # new: instead of the following lines; it updates the PyTorch network in place
            else:
                optimiser.zero_grad()
                torch_loss(net, batch).backward()
                optimiser.step()
            seconds.append(time.perf_counter() - begun)
        print(f"step in {name:<7} log Z {net.log_z.item():.2f}, {np.median(seconds) * 1000:.2f} ms per gradient step")


if __name__ == "__main__":
    main()
