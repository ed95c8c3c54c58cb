"""The same on one NVIDIA GPU: ``python -m benchmarks gpu``.

`problems` says what is measured, `session` how a library is asked in this process, `suite` runs the groups,
`targets` and `page` are what comes of the rows. Everything else is shared with the CPU benchmark.
"""

GROUPS = {
    "control": "A deliberately wrong answer, which the check of answers must catch",
    "floors": "What the device can do: copies from memory to memory, and float32 matrix products",
    "forward": "Sliced distance, all libraries given the same directions",
    "backward": "Sliced distance and its gradient by one cloud, as in training: data have none",
    "backward_both": "Sliced distance and its gradients by the points of both clouds",
    "drawing": "Sliced distance with directions drawn anew in every call",
    "memory": "Memory of one forward and backward call at its peak, beyond the data",
    "data": "Data as people have it, against plain torch: ties, zeros, long tails, outliers, offsets",
    "data_backward": "The same with the gradients of both clouds",
    "sizes": "Powers of two and their neighbours, against plain torch",
    "graphs": "Small problems replayed from a CUDA graph: sliced distance",
    "graphs_backward": "Small problems replayed from a CUDA graph: sliced distance and both gradients",
    "projected": "Projected distance against plain torch",
    "projected_backward": "Projected distance and both gradients against plain torch",
    "weighted": "Points with weights, against ours and plain torch's without and with them",
    "weighted_backward": "The same with the gradient by one cloud",
    "weighted_data": "Data as people have it, with weights, against plain torch",
    "weighted_data_backward": "The same with the gradients of both clouds",
    "band": "From 16,385 to 60,000 points on 64 directions, against plain torch",
    "band_backward": "The same with the gradient by one cloud",
    "hadamard": "Sliced distance on directions drawn anew: Hadamard blocks, orthogonal and independent ones",
    "hadamard_backward": "The same with the gradient by one cloud",
    "jax": "JAX under `jit`: our function against plain jnp",
    "jax_backward": "The same with the gradient by one cloud",
    "jax_data": "JAX under `jit`: data as people have it, against plain jnp",
    "jax_data_backward": "The same with the gradients of both clouds",
}
"""Every group of problems and what it shows."""
