"""Creators for real models: prompts rewritten, scored and classified by a language model.

`methods` says which evolving schemes there are and what their methods mean, `templates` what a
model is told for each, `unusable` which of its replies are no prompt, and `creator` puts these
together over anything that writes text (`generator`), of which an OpenAI-compatible endpoint is
one. `scoring` and `topics` ask a judge about prompts: how complex, how good, about what.
"""
