"""gymnax's CartPole as a custom world: `jax/own_cartpole:OwnCartPole`, to be timed beside the built-in one."""

from gymnax.environments.classic_control.cartpole import CartPole


class OwnCartPole(CartPole):
    """The same environment under another name."""
