"""The one door to stable-worldmodel's environments."""

from __future__ import annotations

import logging
import warnings
from typing import Any

PINNED_VERSION = "0.1.1"


def make_swm_env(env_id: str, **kwargs: Any) -> Any:
    """Build the bare environment `env_id`, without Gymnasium's wrappers, and reset it once.

    stable-worldmodel (and with it torch) is imported before the simulators: a process that loads
    MuJoCo's GL libraries before torch's compiler libraries crashes.

    Raises:
        ValueError: stable-worldmodel or one of its simulators is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # third-party deprecations nobody here can act on
            import gymnasium
            import stable_worldmodel  # noqa: F401

            logging.getLogger("absl").setLevel(logging.ERROR)
            env = gymnasium.make(env_id, disable_env_checker=True, **kwargs).unwrapped
            env.reset(seed=0)
            return env
    except ModuleNotFoundError as error:
        raise ValueError(
            f"{env_id} needs the module {error.name!r}; install it with: "
            "pip install 'goalward[sim]' -c constraints.txt"
        ) from error
