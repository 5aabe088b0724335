"""The first step of migrating your own network: PyTorch acts, JAX computes the gradient step.

    trainer = xladder.hybrid.JaxStep(net, FlaxNet(), jax_loss, optimiser=("adam", 1e-3), inputs=observations)
    loss = trainer.step(batch)          # instead of zero_grad, loss.backward() and optimiser.step()
    action = net(observation).argmax()  # PyTorch acts with the updated weights

The rest of the training loop stays as it was. For xladder's own workloads, `--rung hybrid` does the same.
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
    """Trains a PyTorch module in place; gradients and updates are computed in JAX, in one compiled program.

    The optimiser works on PyTorch's parameter layout, so it does exactly what PyTorch's would, even where Flax lays
    out a layer differently (a GRU's biases). Parameters with `requires_grad=False` are not updated. Dropout is off.

    Args:
        torch_module: the network that acts. Every step changes its parameters in place.
        flax_module: its Flax Linen twin. Both have to give the same outputs for `inputs`; a `UsageError` says where
            they differ.
        loss: the loss in JAX, a function `loss(net, batch)` that calls `net` like the PyTorch module and returns a
            scalar; with `has_aux`, a tuple of a scalar and anything else. Values that need another network, such as
            a target network, are computed beforehand and passed in the batch.
        optimiser: ("adam", 1e-3); "sgd", "adamw" and "rmsprop" also work, with PyTorch's defaults. Or an optax
            optimiser.
        inputs: example inputs to compare both modules on: an array, a tuple of positional arguments or a dict of
            keyword arguments. Optional if the network takes one array and starts with a linear or similar layer.
        names: names of layers, or of the modules around them, that cannot be matched automatically:
            {"encoder": "Encoder_0", "head.0": "Dense_2"}.
        flax_inputs: inputs for the Flax module if they differ, such as images with channels last.
        has_aux: whether the loss returns more than a scalar. `step` then returns that as well.
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
            raise UsageError(f"`loss` is a {type(loss).__name__}, but it has to be a function of (net, batch).")
        self.optimiser, self.loss, self.has_aux = in_jax(optimiser), loss, has_aux
        twins = matching.meet(torch_module, flax_module, inputs, names, flax_inputs)
        self.match = twins.match
        if any(pair.torch.kind.statistics for pair in self.match.pairs):
            raise UsageError(
                "BatchNorm updates its statistics when PyTorch runs the training step, and here JAX does: "
                "use a LayerNorm or a GroupNorm."
            )
        where = where_outputs_part(twins)
        if where or self.match.doubt:
            raise UsageError(f"The two modules are not the same network. {where}" if where else self.match.doubt)
        self.torch_module, self.flax_module = torch_module, flax_module
        self._state: dict[str, Any] = {}  # trained parameters, by PyTorch's names
        self._fixed: dict[str, Any] = {}
        self._opt_state: Any = None
        self._step = jax.jit(self._update, donate_argnums=(0, 1))
        self.reload()

    def step(self, batch: Any) -> Any:
        """Update the PyTorch module once.

        Args:
            batch: the second argument of the loss: any pytree of NumPy arrays or tensors. A new batch shape triggers
                a compilation.

        Returns:
            The loss before the update; with `has_aux`, a tuple of it and the loss's second output.
        """
        arguments = arrays(batch)
        try:
            self._state, self._opt_state, loss, aux = self._step(self._state, self._opt_state, self._fixed, arguments)
        except UsageError:
            raise
        except Exception as error:
            raise UsageError(
                f"The step cannot be computed with a batch of {describe(arguments)}: {first_line(error)} "
                "The loss is called as loss(net, batch)."
            ) from error
        layers_torch.write(self.torch_module, self._state)
        return (float(loss), jax.tree.map(np.asarray, aux)) if self.has_aux else float(loss)

    @property
    def params(self) -> Any:
        """The current parameters in Flax's layout, which `flax_module.apply` is given as `params`."""
        params = self.match.to_flax({**self._fixed, **self._state})["params"]
        return jax.tree.map(np.array, params)  # copies, because the next step overwrites these

    def reload(self) -> None:
        """Restart from the PyTorch module's current parameters, with a fresh optimiser state."""
        self._state = _on_device(layers_torch.numbers(self.torch_module, trained=True))
        self._fixed = _on_device(layers_torch.numbers(self.torch_module, trained=False))
        self._opt_state = jax.jit(self.optimiser.init)(self._state)

    def state(self) -> dict[str, Any]:
        """The full training state as NumPy arrays: parameters by PyTorch's names, and the optimiser state."""
        return jax.tree.map(np.array, {"parameters": self._state, "optimiser": self._opt_state})

    def take_state(self, state: Mapping[str, Any]) -> None:
        """Restore a state returned by `state`."""
        self._state, self._opt_state = _on_device((state["parameters"], state["optimiser"]))
        layers_torch.write(self.torch_module, self._state)

    def _update(self, state: Any, opt_state: Any, fixed: Any, batch: Any) -> tuple[Any, Any, Any, Any]:
        def loss(state: Any) -> Any:
            net = layers_flax.network(self.flax_module, self.match.to_flax({**fixed, **state}))
            aux: list[Any] = []

            def with_aux(net: Any, batch: Any) -> Any:
                outputs = self.loss(net, batch)
                if self.has_aux:
                    if not (isinstance(outputs, tuple) and len(outputs) == 2):
                        raise UsageError("With `has_aux` the loss has to return a number and something else.")
                    aux.append(outputs[1])
                return outputs

            return scalar(with_aux, net, batch), aux[0] if aux else ()

        (value, aux), gradient = jax.value_and_grad(loss, has_aux=True)(state)
        updates, opt_state = self.optimiser.update(gradient, opt_state, state)
        return optax.apply_updates(state, updates), opt_state, value, aux


def _on_device(tree: Any) -> Any:
    return jax.device_put(jax.tree.map(np.array, tree))  # copies, because a step overwrites them
