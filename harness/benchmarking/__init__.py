"""The benchmarks of the paper on real models: answered, judged, or scored from published files."""
