"""The paper's benchmarks, one file each: data, judge prompts, reply parsing, scores."""
