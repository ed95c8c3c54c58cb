"""What the pairs of couplings cost: on lines, in full space, in pools."""
