"""gymnax's CartPole as a user would bring it: `jax/own_cartpole:OwnCartPole`, to be timed beside the built-in one."""

from gymnax.environments.classic_control.cartpole import CartPole


class OwnCartPole(CartPole):
    """The same world under another name."""
