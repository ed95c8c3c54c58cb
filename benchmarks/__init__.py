"""Our library beside its peers, answers first, then time: ``python -m benchmarks cpu``.

`problems` says what is measured, `libraries/` how each library is called, `worker` is the process that one
library runs in, `runner` gives the processes their turns, `agreement` judges answers, `report` renders.
"""

GROUPS = {
    "control": "A deliberately wrong answer, which the check of answers must catch",
    "forward": "Sliced distance, all libraries given the same directions, both NumPy sort paths",
    "floor": "What no implementation on this machine can avoid: projections and sorts alone",
    "backward": "Sliced distance and its gradient from torch CPU tensors",
    "projected": "Projected distance against POT's expected sliced plan",
    "unequal": "Clouds of different sizes, where POT's float32 is wrong",
    "hadamard": "Drawing a basis of directions and projecting on it: Hadamard against dense orthogonal",
    "drawing": "Sliced distance where each library draws its own directions",
    "data": "Data as people have it, against Gaussian clouds: ties, zeros, long tails, outliers, offsets",
    "data_projected": "The same for the projected distance, where ties are put in order",
    "growth_n": "Time against the number of points",
    "growth_dim": "Time against the dimension",
    "growth_directions": "Time against the number of directions",
    "threads": "Time against the number of threads",
    "memory": "Memory of one call at its peak, beyond the data",
    "cold_start": "A fresh process: import and one small problem",
}
"""Every group of problems and what it shows."""
