"""The one door to stable-worldmodel's environments."""

from __future__ import annotations

import logging
import warnings
from typing import Any

from goalward.core.checks import one_line

PINNED_VERSION = "0.1.1"
INSTALL_SIM = "pip install 'goalward[sim]'   (in a checkout, add: -c constraints.txt)"


def make_swm_env(env_id: str, **kwargs: Any) -> Any:
    """Build the bare environment `env_id`, without Gymnasium's wrappers, and reset it once.

    stable-worldmodel (and with it torch) is imported before the simulators: a process that loads
    MuJoCo's GL libraries before torch's compiler libraries crashes.

    Raises:
        ValueError: stable-worldmodel or one of its simulators is missing or does not load.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # third-party deprecations nobody here can act on
        logging.getLogger("absl").setLevel(logging.ERROR)
        try:
            import cv2  # noqa: F401 - frames are resized with it
            import gymnasium
            import stable_worldmodel  # noqa: F401 - registers its environments

            env = gymnasium.make(env_id, disable_env_checker=True, **kwargs).unwrapped
        except (ImportError, RuntimeError) as error:
            reason = one_line(str(error))
            raise ValueError(f"{env_id} cannot be loaded ({reason}); {INSTALL_SIM}") from error
        env.reset(seed=0)
    return env
