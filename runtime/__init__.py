"""Running a pair: sessions, the speculation loop, replay, measurement, tuning."""
