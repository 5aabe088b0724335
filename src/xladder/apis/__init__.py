"""Our worlds in other people's APIs: PettingZoo, Gymnasium, JaxMARL and gymnax. `xladder.make` is the way in."""
