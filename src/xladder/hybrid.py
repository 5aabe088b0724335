"""The first step of a migration for a network of one's own: PyTorch acts, JAX computes the gradient step.

    trainer = xladder.hybrid.JaxStep(net, FlaxNet(), jax_loss, optimiser=("adam", 1e-3), inputs=observations)
    loss = trainer.step(batch)          # instead of zero_grad, loss.backward() and optimiser.step()
    action = net(observation).argmax()  # PyTorch goes on acting, with what was learned

Everything else of a training loop stays as it was. For the workloads of xladder, `--rung hybrid` is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
import optax

from xladder.errors import UsageError
from xladder.parity.modules import scalar, where_outputs_part
from xladder.twins import layers_flax, layers_torch, matching
from xladder.twins.calls import arrays, describe, first_line
from xladder.twins.optimisers import in_jax


class JaxStep:
    """Trains a PyTorch module in place with gradients and updates that are computed in JAX, in one compiled program.

    The optimiser sees PyTorch's own arrays, so that it does what PyTorch's would do, also where Flax lays out a layer
    in another way (a GRU's biases). Parameters with `requires_grad=False` stay as they are. Dropout is off.

    Args:
        torch_module: the network that acts. Its parameters are changed in place by every step.
        flax_module: its Flax Linen twin. The two have to say the same of `inputs`; a `UsageError` says where they part.
        loss: JAX's, a function `loss(net, batch)` that calls `net` as the PyTorch module is called and returns a
            number; a tuple of a number and anything else, if `has_aux`. What needs another network, such as a
            target network, is computed before and comes with the batch.
        optimiser: ("adam", 1e-3); "sgd", "adamw" and "rmsprop" are there, too, with PyTorch's defaults. Or optax's.
        inputs: what both modules are called with to compare them: an array, a tuple of arguments, or a dict of them.
            It may be left out if the network takes one array and begins with a linear layer or the like.
        names: names of layers, or of what they are in, where they cannot be found:
            {"encoder": "Encoder_0", "head.0": "Dense_2"}.
        flax_inputs: the inputs of the Flax module if they are others, such as pictures with their channels last.
        has_aux: whether the loss returns more than a number. `step` returns it, too, then.
    """

    def __init__(
        self,
        torch_module: Any,
        flax_module: Any,
        loss: Callable[[Any, Any], Any],
        optimiser: Any = ("adam", 1e-3),
        inputs: Any = None,
        *,
        names: Mapping[str, str] | None = None,
        flax_inputs: Any = None,
        has_aux: bool = False,
    ):
        if not callable(loss):
            raise UsageError(f"`loss` is a {type(loss).__name__}, and has to be a function of (net, batch).")
        self.optimiser, self.loss, self.has_aux = in_jax(optimiser), loss, has_aux
        twins = matching.meet(torch_module, flax_module, inputs, names, flax_inputs)
        self.match = twins.match
        if any(pair.torch.kind.statistics for pair in self.match.pairs):
            raise UsageError(
                "A BatchNorm takes its statistics while PyTorch trains, and PyTorch does not train here: "
                "use a LayerNorm or a GroupNorm."
            )
        where = where_outputs_part(twins)
        if where or self.match.doubt:
            raise UsageError(f"The two modules are not the same network. {where}" if where else self.match.doubt)
        self.torch_module, self.flax_module = torch_module, flax_module
        self._state: dict[str, Any] = {}  # what is trained, by PyTorch's names
        self._fixed: dict[str, Any] = {}
        self._memory: Any = None  # the optimiser's
        self._step = jax.jit(self._update, donate_argnums=(0, 1))
        self.reload()

    def step(self, batch: Any) -> Any:
        """One update of the PyTorch module.

        Args:
            batch: what the loss is given: any pytree of NumPy arrays or of tensors. Batches of another shape are
                compiled anew.

        Returns:
            The loss before the update; with `has_aux`, a tuple of it and what the loss returns besides.
        """
        given = arrays(batch)
        try:
            self._state, self._memory, loss, more = self._step(self._state, self._memory, self._fixed, given)
        except UsageError:
            raise
        except Exception as error:
            raise UsageError(
                f"The step cannot be computed with a batch of {describe(given)}: {first_line(error)} "
                "The loss is called as loss(net, batch)."
            ) from error
        layers_torch.write(self.torch_module, self._state)
        return (float(loss), jax.tree.map(np.asarray, more)) if self.has_aux else float(loss)

    @property
    def params(self) -> Any:
        """The parameters as Flax's, as `flax_module.apply({"params": …})` takes them."""
        params = self.match.to_flax({**self._fixed, **self._state})["params"]
        return jax.tree.map(np.array, params)  # copies, because the next step overwrites these

    def reload(self) -> None:
        """Begin anew with the parameters that the PyTorch module has now; the optimiser forgets what it remembered."""
        self._state = _on_device(layers_torch.numbers(self.torch_module, trained=True))
        self._fixed = _on_device(layers_torch.numbers(self.torch_module, trained=False))
        self._memory = jax.jit(self.optimiser.init)(self._state)

    def state(self) -> dict[str, Any]:
        """All that training would go on from, as NumPy arrays: parameters by PyTorch's names, and the optimiser's."""
        return jax.tree.map(np.array, {"parameters": self._state, "optimiser": self._memory})

    def take_state(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` has returned."""
        self._state, self._memory = _on_device((state["parameters"], state["optimiser"]))
        layers_torch.write(self.torch_module, self._state)

    def _update(self, state: Any, memory: Any, fixed: Any, batch: Any) -> tuple[Any, Any, Any, Any]:
        def loss(state: Any) -> Any:
            net = layers_flax.network(self.flax_module, self.match.to_flax({**fixed, **state}))
            more: list[Any] = []

            def kept(net: Any, batch: Any) -> Any:
                said = self.loss(net, batch)
                if self.has_aux:
                    if not (isinstance(said, tuple) and len(said) == 2):
                        raise UsageError("With `has_aux` the loss has to return a number and something else.")
                    more.append(said[1])
                return said

            return scalar(kept, net, batch), more[0] if more else ()

        (value, more), gradient = jax.value_and_grad(loss, has_aux=True)(state)
        moves, memory = self.optimiser.update(gradient, memory, state)
        return optax.apply_updates(state, moves), memory, value, more


def _on_device(tree: Any) -> Any:
    return jax.device_put(jax.tree.map(np.array, tree))  # copies, because a step overwrites them
