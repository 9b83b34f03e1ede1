"""A world of instructions: real text, and rewards by rule.

A prompt asks for a text about a subject and gives one to three instructions that can be checked,
such as "Use only lowercase letters." An answer's reward is the share of them that it follows. There
is no reward model, judge or server: everything follows from the texts of prompt and answer.

`kinds` has the kinds of instruction, `tasks` the prompts, `rules` the reward, `creator` the
rewriting of prompts, `world` what a profile names, `weights` a language model from a package.
"""
