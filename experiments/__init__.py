"""The paper's figures and numbers, again, and the power of a test: ``python -m experiments NAME [--smoke]``.

One file or folder a figure. Each has a frozen `Config`, a `SMOKE` config that takes seconds, `run(config)` that
returns rows, `plot(rows)` and `check(rows)`.
"""

NAMES = {
    "fig1_mse_map": "Figure 1: where independent directions beat orthogonal ones, over two angles",
    "fig2_mse_scatter": "Figure 2: orthogonal against iid error on random problems",
    "table_2x2": "The two data sets in the proof of the 2x2 proposition, with the paper's numbers",
    "fig3_swae": "Figure 3: sliced Wasserstein auto-encoders with three estimators (extra `torch`)",
    "fig4_trust_region": "Figure 4: PPO held near its old policy by SW or PW (extra `rl`)",
    "fig5_hidden_codes": "Figure 5: codes of auto-encoders trained with SW and with PW (extra `torch`)",
    "law_as_prior": "Codes of figure 5 held to the law of the prior instead of points of it (extra `torch`)",
    "fig6_generators": "Figure 6: generators of 16 Gaussians, trained with SW or with PW (extra `torch`)",
    "swae_gradients": "How much gradients vary inside the auto-encoder, with each estimator (extra `torch`)",
    "match_quality": "How near `osl.match` comes to the optimal coupling, and in what time",
    "flow_matching": "Flow matching with pairs by `osl.match`, at random, or the cheapest (extra `torch`)",
    "conjecture_pw": "The conjecture about PW: a counterexample, and how often it fails",
    "two_sample_level": "How often the combined two-sample test, and tests of columns, raise a false alarm",
    "planted_changes": "Thirty changes planted in tables: which methods find them, and how often they cry wolf",
    "power_two_sample": "How often two-sample tests notice a difference: SW, PW, MMD, energy, KS",
}
"""Every experiment and what it shows."""
