"""Forecasts of request rates: how high the rate of each service will rise while a job runs."""
