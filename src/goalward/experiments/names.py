"""What methods are called in tables and figures, instead of their whole settings."""

from __future__ import annotations

from goalward.planning.cem import CEM

PLAIN = {
    "gc-idm": "GC-IDM (time to go)",
    "gc-idm:mode=budget": "GC-IDM (budget)",
    "cem": "CEM",
    "icem": "iCEM",
    "mppi": "MPPI",
    "hybrid": "hybrid",
}
SEARCH = {"solver.num_samples", "solver.num_iters", "solver.num_elites"}


def method_name(spec: str) -> str:
    """Such as 'CEM 30 x 2' for `cem:solver.num_samples=30,solver.num_iters=2`."""
    if spec in PLAIN:
        return PLAIN[spec]
    name, _, text = spec.partition(":")
    settings = _settings(text)
    if name == "cem" and settings.keys() <= SEARCH:
        samples, iters = search_size(spec)
        return f"CEM {samples} x {iters}"
    if name == "hybrid" and settings.get("search") == "null":
        return f"GC-IDM, {settings.get('commit', '?')} at a look"
    if name == "interpolation":
        words = [f"{value} {key}" for key, value in settings.items()]
        return ", ".join(["line", *words])
    return spec


def search_size(spec: str) -> tuple[int, int]:
    """Samples and iterations that a setting of CEM stands for."""
    settings, default = _settings(spec.partition(":")[2]), CEM()
    return (
        int(settings.get("solver.num_samples", default.num_samples)),
        int(settings.get("solver.num_iters", default.num_iters)),
    )


def _settings(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.split(",") if part)
    return {key: value for key, _, value in pairs}
