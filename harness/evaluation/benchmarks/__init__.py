"""The paper's benchmarks, one file each: data, judge's prompts, reading of replies, scores."""
