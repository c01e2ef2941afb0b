"""Will an online pod break its latency limit next to a mix? Features, monotone models, calibration."""
