"""The keys of `metrics.json` that every method has, in every release."""

STABLE_KEYS = {
    "position_rmse_m",
    "position_median_m",
    "heading_rmse_deg",
    "share_beyond_1m",
    "frames",
    "step_ms_p50",
    "step_ms_p99",
}
