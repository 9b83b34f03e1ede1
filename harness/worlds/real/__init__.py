"""Real models: those of the hub, creators and judges behind endpoints, published benchmarks.

`templates` says which evolving schemes there are and what a model is told for each, `unusable`
which of its replies are no prompt, and `creator` puts these together over anything that writes text
(`generator`), of which an OpenAI-compatible endpoint is one. `scoring` has the questions about
prompts: how complex, how good, about what. `sources` has human prompts, `models` and `benchmarks`
know what lies on this machine, and `judging`, `lm_eval` and `scorer` are what stages do.
"""
