"""Side-by-side timings against peers: `python -m benchmarks.NAME`; never part of the tests."""
