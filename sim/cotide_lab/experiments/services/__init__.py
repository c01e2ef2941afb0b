"""Unlike services that appear over time: does the latency guard hold for each of them?"""
