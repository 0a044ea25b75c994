"""The one home of defaults that both the command line and the library show.

Nothing heavy is imported here, so that `goalward --help` stays quick.
"""

from typing import Literal

IMAGE_SIZE = 64  # pixels a side
GOAL_OFFSET = 25  # recorded steps from start to goal, as in the benchmark
BUDGET = 50  # steps an episode may take, as in the benchmark
NUM_ENVS = 8  # that run side by side in an evaluation
PAIRS = 200  # start and goal pairs, the paper's larger protocol
QUICK_PAIRS = 50  # the benchmark's own number
OUTCOME_PAIRS, OUTCOME_PLANS = 100, 10  # on which a world model's predictions are simulated
SEED = 0
SAVE_SECONDS = 60.0  # between the states that a killed training goes on from
FRAMESKIP = 5  # environment steps a step of the world model, as in the benchmark
EMBED_BATCH = 256  # frames a call of the encoder, as in the paper
MAX_HORIZON = 50  # steps to the farthest goal of a training, as in the paper

PresetName = Literal["paper", "cpu-long", "cpu", "smoke"]
# Of experiments. `bundled`: the controllers and pairs that come with the package; trains nothing.
ExperimentPreset = Literal["paper", "cpu-long", "cpu", "smoke", "bundled"]
PRESET_PAIRS = {"paper": 200, "cpu-long": 100, "cpu": 100, "smoke": 1}  # of an experiment's cell

# Episodes by their use: held out for results, held out for choices, or all of them.
SplitPart = Literal["test", "validation", "all"]

# The inverse dynamics models.
ModelKind = Literal["gc-idm", "pairwise"]
