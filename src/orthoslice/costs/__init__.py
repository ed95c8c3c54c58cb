"""Step 5, price: what the pairs of couplings cost, on lines, in full space, in pools."""
