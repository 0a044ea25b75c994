"""The one home of defaults that both the command line and the library show.

Nothing is imported here, so that `goalward --help` stays quick.
"""

IMAGE_SIZE = 64  # pixels a side
EPISODES = 100  # demonstrations a collection
GOAL_OFFSET = 25  # recorded steps from start to goal, as in the benchmark
BUDGET = 50  # steps an episode may take, as in the benchmark
PAIRS = 200  # start and goal pairs, the paper's larger protocol
SEED = 0
SAVE_SECONDS = 60.0  # between the states that a killed training goes on from
FRAMESKIP = 5  # environment steps a step of the world model, as in the benchmark
