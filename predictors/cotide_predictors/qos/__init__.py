"""Will an online pod break its latency limit beside a mix? Features, monotone models, calibration."""
