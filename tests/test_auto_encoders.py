"""The auto-encoders of figures 3 and 5: network, prior, runs that go on, gradients, and claims."""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="pip install 'orthoslice[torch]'")

import torch
from scipy.stats import kstest
from typer.testing import CliRunner

# `pytest` alone, unlike `python -m pytest`, does not look for packages in the repository.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from experiments import autoencoder, fig3_swae, fig5_hidden_codes, swae_gradients, trainings
from experiments.__main__ import app
from experiments.autoencoder import AutoEncoder, Decoder, Encoder, Recipe, draw_prior
from experiments.data import images_on
from experiments.fig3_swae import claims as curve_claims
from experiments.fig3_swae import config as curve_config
from experiments.fig3_swae import curves, tables, timing
from experiments.fig5_hidden_codes import claims as code_claims
from experiments.fig5_hidden_codes import config as code_config
from experiments.fig5_hidden_codes import measures
from experiments.fig5_hidden_codes import tables as code_tables
from experiments.swae_gradients import claims as gradient_claims
from experiments.swae_gradients import measuring
from experiments.swae_gradients import tables as gradient_tables
from experiments.trainings import Place

import orthoslice as osl

SMALL = Recipe(
    data="digits",
    distance="sliced",
    directions="orthogonal",
    n_directions=8,
    learning_rate=1e-3,
    seed=3,
    code_dim=4,
    prior="cube",
    n_images=100,
    batch_size=40,
    depth=1,
)


def make(**changes: Any) -> AutoEncoder:
    return AutoEncoder(dataclasses.replace(SMALL, **changes))


def test_network_is_that_of_the_paper() -> None:
    encoder, decoder = Encoder(128, 16), Decoder(128, 16)
    channels = [
        [layer.out_channels for layer in part.convolutions if isinstance(layer, torch.nn.Conv2d)]
        for part in (encoder, decoder)
    ]
    assert channels == [[16, 16, 32, 32, 64, 64], [64, 64, 64, 64, 32, 32, 1]]
    counts = [sum(weight.numel() for weight in part.parameters()) for part in (encoder, decoder)]
    assert counts == [219_504, 324_321]
    with torch.no_grad():
        codes = encoder(torch.rand(2, 1, 32, 32))
        assert codes.shape == (2, 128)
        assert decoder(codes).shape == (2, 1, 32, 32)
    # All but the last have a slope of 0.2 behind them, three of the encoder's layers a pool, and what is dense
    # is linear but for one relu.
    slopes = [layer.negative_slope for layer in encoder.modules() if isinstance(layer, torch.nn.LeakyReLU)]
    assert slopes == [0.2] * 6
    assert [type(layer).__name__ for layer in decoder.dense] == ["Linear", "Linear", "ReLU"]


def test_first_images_are_grey_and_the_same_for_a_seed() -> None:
    first, again, other = make(), make(), make(seed=4)
    for a, b, c in zip(*(run.network.parameters() for run in (first, again, other)), strict=True):
        assert torch.equal(a, b)
        assert a.numel() == 1 or (not a.any() if a.ndim == 1 else not torch.equal(a, c))
    weight = first.encoder.dense[0].weight
    limit = math.sqrt(6 / sum(weight.shape))
    assert 0.95 * limit < weight.abs().max() <= limit
    # As bright as an average pixel; with a bias of 0 it would be 0.5.
    with torch.no_grad():
        x = first.batch(torch.arange(100))
        grey = torch.sigmoid(first.decoder(first.encoder(x)))
    assert abs(grey.mean() - x.mean()) < 0.01 < x.mean() < 0.3


def test_images_have_zeros_around() -> None:
    run = make()
    x = run.batch(torch.arange(3))
    assert x.shape == (3, 1, 32, 32)
    assert x.min() >= 0
    assert x.max() == 1
    torch.testing.assert_close(x[:, :, 2:30, 2:30], images_on("cpu", "digits", 100)[:3].float() / 255)
    assert not x[:, :, :2].any()
    assert not x[..., 30:].any()


def test_priors_are_uniform() -> None:
    """Kolmogorov-Smirnov at 0.001 on three laws; negative control: the radius itself is not uniform."""
    generator = torch.Generator().manual_seed(0)
    disc = draw_prior("disc", 5000, 2, generator).numpy()
    radius, angle = np.linalg.norm(disc, axis=1), np.arctan2(disc[:, 1], disc[:, 0])
    assert kstest(radius**2, "uniform").pvalue > 1e-3
    assert kstest(angle / (2 * np.pi) + 0.5, "uniform").pvalue > 1e-3
    assert kstest(radius, "uniform").pvalue < 1e-9
    cube = draw_prior("cube", 1000, 5, generator).numpy()
    assert kstest(cube.ravel() / 2 + 0.5, "uniform").pvalue > 1e-3
    drawn = measures.draw_disc(5000, np.random.default_rng(0))
    assert kstest((drawn**2).sum(axis=1), "uniform").pvalue > 1e-3


@pytest.mark.parametrize("distance", ["sliced", "projected", "law"])
def test_both_parts_of_the_loss_reach_whom_they_should(distance: str) -> None:
    run = make(distance=distance)
    reconstruction, penalty = run.parts_of_loss(torch.arange(40), run.loss, run.generator)
    assert penalty.item() > 0
    # An image's norm, not its square, and the mean over images.
    with torch.no_grad():
        x = run.batch(torch.arange(40))
        lost = torch.sigmoid(run.decoder(run.encoder(x))) - x
    torch.testing.assert_close(reconstruction, lost.square().sum(dim=(1, 2, 3)).sqrt().mean())
    weights = list(run.network.parameters())
    for part, reaches_decoder in ((penalty, False), (reconstruction, True)):
        found = [bool(gradient.any()) for gradient in torch.autograd.grad(part, weights, retain_graph=True)]
        n_encoder = len(list(run.encoder.parameters()))
        assert all(found[:n_encoder])
        assert found[n_encoder:] == [reaches_decoder] * len(list(run.decoder.parameters()))


def test_law_is_that_of_points_that_are_drawn() -> None:
    """SW_1 of many points of each prior to its law is small; negative control: it is not, to the other's."""
    generator = torch.Generator().manual_seed(0)
    for name, other in (("disc", "cube"), ("cube", "disc")):
        points = draw_prior(name, 20_000, 2, generator)
        right, wrong = (
            osl.sliced_wasserstein(points, autoencoder.LAWS[law](2), 1, rng=0) for law in (name, other)
        )
        assert right.value < 0.01 < 0.05 < wrong.value


def test_runs_of_a_seed_see_the_same() -> None:
    """Before the first step there is no difference but in directions and target; after it there is."""
    runs = [make(directions=name) for name in ("iid", "orthogonal", "hadamard")] + [make(distance="law")]
    first = [run.step(torch.arange(40)) for run in runs]
    assert len({parts[0].item() for parts in first}) == 1
    assert len({parts[1].item() for parts in first}) == 4
    assert all(torch.equal(runs[0].generator.get_state(), run.generator.get_state()) for run in runs)
    assert len({run.step(torch.arange(40))[0].item() for run in runs}) == 4


def test_a_sweep_takes_whole_batches_in_random_order(monkeypatch: pytest.MonkeyPatch) -> None:
    run, seen = make(), []
    monkeypatch.setattr(run, "step", lambda chosen: seen.append(chosen) or torch.tensor([2.0, 1.0]))
    assert run.advance(4) == {"sweep": 5, "loss": 3.0, "reconstruction": 2.0, "penalty": 1.0}
    # 100 images make two batches of 40.
    assert [len(chosen) for chosen in seen] == [40, 40]
    assert len(set(torch.cat(seen).tolist())) == 80
    assert torch.cat(seen).tolist() != sorted(torch.cat(seen).tolist())


@pytest.mark.parametrize(
    "list_jobs",
    [
        lambda: curve_config.list_jobs(dataclasses.replace(fig3_swae.SMOKE, n_seeds=1, n_sweeps=4), Place())[
            1:3
        ],
        lambda: code_config.list_jobs(
            dataclasses.replace(fig5_hidden_codes.SMOKE, n_seeds=1, sweeps=(4,)), Place()
        ),
    ],
    ids=["figure 3", "figure 5"],
)
def test_a_run_in_two_parts_is_the_run_in_one(list_jobs: Any, tmp_path: Path) -> None:
    """Bit for bit: weights, optimizer, directions, order of images and codes of the prior."""
    jobs = list_jobs()
    assert trainings.train_all(jobs, tmp_path / "whole") == []
    assert trainings.train_all([job._replace(n_units=2) for job in jobs], tmp_path / "parts") == []
    assert trainings.train_all(jobs, tmp_path / "parts") == []
    whole, parts = (trainings.collect_rows(jobs, tmp_path / name) for name in ("whole", "parts"))
    assert len(whole) == 4 * len(jobs)
    assert [row["loss"] for row in whole] == [row["loss"] for row in parts]
    states = [
        torch.load(tmp_path / name / f"{jobs[-1].name}.pt", weights_only=True)["training"]["network"]
        for name in ("whole", "parts")
    ]
    assert all(torch.equal(a, b) for a, b in zip(*(state.values() for state in states), strict=True))


@pytest.mark.full
def test_processes_share_the_runs(tmp_path: Path) -> None:
    config = dataclasses.replace(fig5_hidden_codes.SMOKE, sweeps=(1,))
    jobs = code_config.list_jobs(config, Place())
    assert [job.lane for job in jobs] == [0, 0, 1, 1]
    assert trainings.train_all(jobs, tmp_path, n_jobs=2) == []
    assert len(trainings.collect_rows(jobs, tmp_path)) == 4
    assert np.load(tmp_path / f"{jobs[0].name}.npy").shape == (config.n_codes, 2)


def test_missing_data_ends_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTHOSLICE_DATA", str(tmp_path))
    monkeypatch.setattr(
        fig5_hidden_codes, "SMOKE", dataclasses.replace(fig5_hidden_codes.SMOKE, data="fashion-mnist")
    )
    result = CliRunner().invoke(app, ["fig5_hidden_codes", "--smoke", "--out", str(tmp_path)])
    assert result.exit_code == 2
    assert "The folder of Fashion-MNIST must hold train-images-idx3-ubyte" in result.output


def test_runs_are_those_of_the_paper_first() -> None:
    config = curve_config.Config()
    jobs = curve_config.list_jobs(config, Place())
    assert len({job.name for job in jobs}) == len(jobs)
    paper, extra = jobs[:30], jobs[30:]
    assert {job.n_units for job in paper} == {config.n_sweeps}
    counts = {(job.key["n_directions"], job.n_units) for job in extra}
    assert counts == {(128, config.n_count_sweeps), (50, config.n_extra_sweeps)}
    assert all(job.name.startswith("mnist_bf16_50_") for job in paper)
    assert not any(job.name.startswith("mnist_bf16_50_") for job in extra)
    assert {(job.key["data"], job.key["n_directions"], job.key["precision"]) for job in extra} == {
        ("mnist", 128, "bf16"),
        ("fashion-mnist", 50, "bf16"),
        ("mnist", 50, "tf32"),
    }
    # Estimators that are compared share a process, and five processes have equal shares.
    lanes: dict[int, set[str]] = {}
    for job in jobs:
        lanes.setdefault(job.lane, set()).add(job.key["estimator"])
    assert all(len(names) == 3 for lane, names in lanes.items() if lane < 30)
    assert {sum(job.lane % 5 == lane for job in paper) for lane in range(5)} == {6}


def curve_rows(finals: dict[tuple[float, str], list[float]], *, start: float = 20.0) -> list[dict[str, Any]]:
    """Rows of 20 sweeps in which the loss goes down to these numbers, one a seed."""
    made = []
    for (rate, estimator), ends in finals.items():
        for seed, end in enumerate(ends):
            run = curve_config.Run("mnist", "bf16", 50, rate, estimator, seed)
            seconds = 4.0 + 0.01 * (seed % 2)
            for sweep in range(1, 21):
                loss = end + (start - end) / sweep if sweep < 20 else end
                made.append(
                    {
                        **run._asdict(),
                        "sweep": sweep,
                        "loss": loss,
                        "reconstruction": loss,
                        "penalty": 0.0,
                        "seconds": seconds,
                    }
                )
    return made


def timing_rows(distance: dict[str, float], step: dict[str, float]) -> list[dict[str, Any]]:
    """Rows of eight rounds in which all estimators are slow in turn; 128 directions say the opposite."""
    made = []
    for count in (50, 128):
        for number in range(8):
            for name in curve_config.ESTIMATORS:
                row = {"device": "cuda", "n_directions": count, "estimator": name, "round": number}
                sign, extra = (1 if count == 50 else -1), 0.3 * (number % 2)
                row["step_ms"] = 9.0 + sign * step.get(name, 0.0) + extra
                row["distance_ms"] = 1.0 + sign * distance.get(name, 0.0) + extra
                made.append(row)
    return made


def test_claims_of_figure_3_follow_the_curves() -> None:
    base = [5.0, 5.5, 4.5, 5.2, 4.8]
    nearly = [value * (1 + 1e-3 * sign) for value, sign in zip(base, (1, -1, 1, -1, 1), strict=True)]
    lower = [0.95 * value for value in nearly]

    def held(fast: list[float], slow: list[float], timed: list[dict[str, Any]]) -> list[bool]:
        finals = {(1e-4, "iid"): base, (1e-4, "orthogonal"): fast, (1e-4, "hadamard"): fast}
        finals |= {(1e-5, "iid"): base, (1e-5, "orthogonal"): slow, (1e-5, "hadamard"): slow}
        return [claim.held for claim in curve_claims.judge(curve_rows(finals), timed)]

    less, more = {"hadamard": -0.02}, {"hadamard": 0.02}
    assert held(nearly, lower, timing_rows(less, less)) == [True] * 6
    assert held(lower, nearly, timing_rows(more, less)) == [True, True, False, False, False, True]
    assert held(nearly, lower, timing_rows(less, {})) == [True] * 5 + [False]
    detail = curve_claims._cheaper(timing_rows(less, less))[0].detail
    assert detail.startswith("ms: iid 1.15, orthogonal 1.15, HD 1.13; HD - orthogonal: -0.0200 (")
    # Without timed rows the trainings' own seconds count, which are the same for all here.
    assert held(nearly, lower, []) == [True] * 4 + [False]
    rows = curve_rows({(1e-4, name): base for name in curve_config.ESTIMATORS})
    # Without the paper's two learning rates only the runs themselves are judged.
    assert [claim.held for claim in curve_claims.judge(rows, [])] == [True, True]
    assert [claim.held for claim in curve_claims.judge(rows[:-1], [])] == [False, True]
    rising = curve_rows({(1e-4, name): base for name in curve_config.ESTIMATORS}, start=2.0)
    assert [claim.held for claim in curve_claims.judge(rising, [])] == [True, False]


def test_numbers_of_curves() -> None:
    rows = curve_rows({(1e-4, "iid"): [5.0, 6.0], (1e-4, "orthogonal"): [4.0, 5.0]})
    ((kind, group),) = curves.make_curves(rows).items()
    assert kind == ("mnist", "bf16", 50, 1e-4)
    np.testing.assert_allclose(group["iid"].log_loss[:, -1], np.log([5, 6]))
    np.testing.assert_allclose(group["iid"].final, group["iid"].log_loss[:, -2:].mean(axis=1))
    mean, low, high = curves.difference_by_sweep(group["orthogonal"], group["iid"])
    assert mean.shape == (20,)
    assert (low <= mean).all()
    assert (mean <= high).all()
    np.testing.assert_allclose(mean[-1], np.log([4 / 5, 5 / 6]).mean())
    assert "| mnist | 50 | 0.0001 | 20 | orthogonal | 2 |" in tables.tables(rows)


def test_times_are_medians() -> None:
    rows = [
        {"device": "cpu", "n_directions": 8, "estimator": "iid", "round": k, "step_ms": ms, "distance_ms": 1.0}
        for k, ms in enumerate([3.0, 4.0, 100.0], start=1)
    ]
    found = timing.summarize(rows)[8, "iid"]
    assert found["step_ms"] == 4
    assert found["distance_ms_stderr"] == 0
    assert "| 8 | iid | 4 ±" in timing.table(rows)


def end_rows(radii: dict[str, list[float]], w2: float = 0.05) -> list[dict[str, Any]]:
    made = []
    for distance, values in radii.items():
        for seed, radius in enumerate(values):
            key = {"learning_rate": 1e-4, "distance": distance, "seed": seed}
            numbers = {"radius_95": 1.0, "share_outside": 0.0, "w2": w2, "w2_of_prior": 0.03}
            base = dict.fromkeys(measures.COLUMNS) | key | {"reconstruction": 5.0}
            made.append(base | {"kind": "sweep", "sweep": 1, "loss": 9.0, "mean_radius": radius})
            last = {"sweep": 2, "loss": 5.0, "mean_radius": radius}
            made += [base | {"kind": "sweep"} | last, base | {"kind": "codes"} | last | numbers]
    return made


def test_claims_of_figure_5_follow_the_radii() -> None:
    far, near = [0.66, 0.67, 0.65, 0.66, 0.67], [0.6, 0.62, 0.61, 0.6, 0.61]

    def held(rows: list[dict[str, Any]]) -> list[bool]:
        return [claim.held for claim in code_claims.judge(rows)]

    assert held(end_rows({"sliced": far, "projected": near})) == [True, True, True, True, False]
    assert held(end_rows({"sliced": near, "projected": far})) == [True, True, True, False, True]
    assert held(end_rows({"sliced": far, "projected": far}, w2=0.2)) == [True, True, False, False, False]
    shorter = [
        row | {"sweep": 1} if row["seed"] == 3 else row for row in end_rows({"sliced": far, "projected": far})
    ]
    assert held(shorter)[:2] == [False, True]
    assert "| 0.0001 | SW_1 | 2 | 5 | 0.662 (" in code_tables.table(
        end_rows({"sliced": far, "projected": near})
    )


def test_measures_of_codes() -> None:
    points = measures.draw_disc(20_000, np.random.default_rng(1))
    found = measures.measure(points)
    # Five standard errors.
    assert abs(found["mean_radius"] - 2 / 3) < 5 * math.sqrt(1 / 18 / 20_000)
    assert abs(found["radius_95"] - math.sqrt(0.95)) < 0.005
    assert found["share_outside"] == 0
    assert measures.measure(2 * points)["share_outside"] > 0.7


def test_gradient_by_weights_is_that_of_the_distance() -> None:
    """The chain rule over fixed codes gives what one backward pass gives."""
    config = dataclasses.replace(swae_gradients.SMOKE, depth=1)
    job = swae_gradients.list_jobs(config, Place())[0]
    unit = job.make()
    wanted = unit.measurements[0]._replace(of="encoder")
    draw, _ = unit._gradients(wanted)
    training = unit.training
    loss = autoencoder.make_loss("sliced", wanted.estimator, wanted.n_directions, training.recipe.seed)
    prior = training.draw_prior(torch.Generator().manual_seed(training.recipe.seed))
    codes = training.encoder(training.batch(torch.arange(config.batch_size)))
    parts = torch.autograd.grad(loss(codes, prior), list(training.encoder.parameters()))
    torch.testing.assert_close(draw(), torch.cat([part.flatten() for part in parts]))
    # The next draw has other directions.
    assert not torch.equal(draw(), draw())


def test_spread_of_vectors() -> None:
    """Variance 3 x 4 around a mean of squared length 3, within five standard errors, which are right too."""
    generator = torch.Generator().manual_seed(0)
    found = [measuring.spread(1 + 2 * torch.randn(200, 3, generator=generator)) for _ in range(200)]
    variance = np.array([part["variance"] for part in found])
    stderr = np.array([part["variance_stderr"] for part in found])
    assert abs(variance.mean() - 12) < 5 * variance.std() / math.sqrt(200)
    assert 0.8 < stderr.mean() / variance.std() < 1.25
    squared = np.array([part["squared_mean"] for part in found])
    assert abs(squared.mean() - 3) < 5 * squared.std() / math.sqrt(200)


def gradient_rows(variances: dict[str, float], ms: dict[str, float]) -> list[dict[str, Any]]:
    noise = np.random.default_rng(0).normal(1, 0.01, size=(5, 2, 3))
    return [
        {
            **{
                "seed": seed,
                "sweep": 0,
                "of": of,
                "varies": "directions",
                "estimator": name,
                "n_directions": 50,
            },
            **{"n_repeats": 10, "variance": variance * noise[seed, i, j], "variance_stderr": 0.1},
            **{"squared_mean": 1.0, "ms": ms[name]},
        }
        for seed in range(5)
        for i, of in enumerate(("codes", "encoder"))
        for j, (name, variance) in enumerate(variances.items())
    ]


def test_claims_of_gradients_follow_the_variances() -> None:
    equal = dict.fromkeys(("iid", "orthogonal", "hadamard"), 1.0)

    def held(variances: dict[str, float], ms: dict[str, float]) -> list[bool]:
        return [claim.held for claim in gradient_claims.judge(gradient_rows(variances, ms))]

    better = equal | {"orthogonal": 0.5, "hadamard": 0.5}
    assert held(better, equal | {"hadamard": 0.5}) == [True] * 5
    assert held(equal, equal) == [False, False, True, False, False]
    # Half the variance for three times the time is no gain.
    assert held(better, equal | {"orthogonal": 3.0}) == [True, True, True, False, True]
    rows = gradient_rows(better, equal)
    (case, _) = gradient_claims.list_cases(rows)
    ratio = gradient_claims.compare(rows, case, "orthogonal")
    assert ratio.low < ratio.middle < ratio.high
    assert abs(ratio.middle - 0.5) < 0.02
    assert "| 0 | codes | directions | 50 |" in gradient_tables.table(rows)
