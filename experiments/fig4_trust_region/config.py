"""What is trained: tasks, methods, strengths of the penalty, seeds, and the settings of PPO."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

DistanceName: TypeAlias = Literal["none", "sw", "pw", "kl"]
DirectionsName: TypeAlias = Literal["orthogonal", "iid"]
PointsName: TypeAlias = Literal["actions", "joint"]


class Method(NamedTuple):
    """A way to keep the new policy near the old one."""

    label: str
    distance: DistanceName = "none"
    """D: SW_1, PW_1 or the Kullback-Leibler divergence."""
    directions: DirectionsName = "orthogonal"
    points: PointsName = "actions"
    """What the clouds are made of: actions alone, or states and actions side by side."""
    clips: bool = False
    """Whether ratios are clipped at `Config.standard_clip_range` instead of `Config.clip_range`."""


METHODS = {
    "none": Method("no trust region"),
    "sw": Method("SW$_1$", "sw"),
    "pw": Method("PW$_1$", "pw"),
    "sw_iid": Method("SW$_1$, iid directions", "sw", directions="iid"),
    "pw_iid": Method("PW$_1$, iid directions", "pw", directions="iid"),
    "sw_joint": Method("SW$_1$ with states", "sw", points="joint"),
    "pw_joint": Method("PW$_1$ with states", "pw", points="joint"),
    "kl": Method("KL", "kl"),
    "clip": Method("clipped PPO", clips=True),
}


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that a run depends on.

    From the paper: two layers of 64 with tanh, a clip range that clips nothing, learning rate 3e-5, strength
    0.001, 5 seeds. It says no more than that its code is based on OpenAI's baselines; what it leaves open is
    as there: rollouts of 2,048 steps, 10 epochs of minibatches of 64, discount 0.99, GAE 0.95, value loss
    weighed by 0.5, gradients cut to norm 0.5, no entropy bonus, observations and rewards normalised by running
    statistics. The learning rate stays constant, since the paper gives one number.
    """

    tasks: tuple[str, ...] = ("Hopper-v5", "HalfCheetah-v5")
    methods: tuple[str, ...] = ("none", "sw", "pw")
    n_seeds: int = 5
    n_steps: int = 1_000_000
    strength: float = 1e-3

    # Beyond the paper, on one task: what else holds a policy near the old one, as long as the paper's runs; and
    # other directions and strengths. These end where the longer runs have a row, and can be compared there.
    extra_task: str = "HalfCheetah-v5"
    reference_methods: tuple[str, ...] = ("kl", "clip")
    n_extra_steps: int = 307_200
    extra_methods: tuple[str, ...] = ("sw_iid", "pw_iid")
    sweep_methods: tuple[str, ...] = ("pw",)
    sweep_strengths: tuple[float, ...] = (1e-2, 1e-1, 1.0, 10.0)

    hidden: tuple[int, ...] = (64, 64)
    learning_rate: float = 3e-5
    clip_range: float = 10.0
    standard_clip_range: float = 0.2
    rollout_steps: int = 2048
    batch_size: int = 64
    n_epochs: int = 10
    discount: float = 0.99
    gae_lambda: float = 0.95
    value_coefficient: float = 0.5
    max_gradient_norm: float = 0.5

    n_blocks: int = 1
    """Blocks of directions that D takes, each as many as its points have coordinates."""
    rollouts_per_row: int = 10
    is_kept: bool = True
    """Whether training is kept under `build/` and taken up again; a small run starts anew."""
    seed: int = 2019

    def steps_of(self, run: Run) -> int:
        """How many steps a run takes."""
        long = (*self.methods, *self.reference_methods)
        is_extra = run.method not in long or run.strength not in (0.0, self.strength)
        return self.n_extra_steps if is_extra else self.n_steps


SMOKE = Config(
    # MuJoCo is not needed for this one, and its episodes are short.
    tasks=("Pendulum-v1",),
    n_seeds=2,
    n_steps=512,
    n_extra_steps=512,
    extra_task="Pendulum-v1",
    reference_methods=("kl",),
    extra_methods=("sw_iid",),
    sweep_strengths=(1.0,),
    rollout_steps=256,
    n_epochs=2,
    rollouts_per_row=1,
    is_kept=False,
)


class Run(NamedTuple):
    """One training: its settings beside those that all share."""

    task: str
    method: str
    strength: float
    """The factor lambda of the penalty; 0 where there is none."""
    seed: int

    @property
    def name(self) -> str:
        return f"{self.task}_{self.method}_{self.strength:g}_{self.seed}"


def list_runs(config: Config) -> list[Run]:
    """Every run, those of the paper first, and all methods of a seed before the next seed."""
    paper = [(task, method, config.strength) for task in config.tasks for method in config.methods]
    others = (*config.reference_methods, *config.extra_methods)
    extra = [(config.extra_task, method, config.strength) for method in others]
    extra += itertools.product([config.extra_task], config.sweep_methods, config.sweep_strengths)
    return [
        Run(task, method, strength if METHODS[method].distance != "none" else 0.0, seed)
        for group in (paper, extra)
        for seed in range(config.n_seeds)
        for task, method, strength in group
    ]


def without_extras(config: Config) -> Config:
    """The paper's runs alone."""
    return replace(config, reference_methods=(), extra_methods=(), sweep_methods=())
