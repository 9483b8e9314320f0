"""Other frameworks: `sciml.interop.flax` joins Flax (Linen and NNX) with Equinox modules."""
