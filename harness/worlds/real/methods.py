"""The evolving schemes, and the methods each draws from for a rewrite.

A scheme is a set of methods; one is drawn uniformly for each rewrite. What a method tells the
model is a template (`templates.yaml`); here stands what it is for. The schemes of table 12:

- `evol_instruct`: four methods in depth, which make a prompt ask for more, and one in breadth,
  which leaves it for another of the same kind;
- `evol_complexity`: the four methods in depth alone;
- `evol_quality`: five ways to better a prompt as a question. The published method rewrites
  *answers* along these five; here they are turned to prompts;
- `self_instruct`: a new prompt that the old one only sets the example for.

And the one of online eva, `appendix_f`: five methods in breadth and five in depth, meant for trees
of which the best is rewritten on.

Source: paper sections 3.3 and H.1, table 12, appendices A and F; distilabel 1.3.2 for the methods
of the first four.
"""

from __future__ import annotations

from collections.abc import Mapping

IN_DEPTH = ("constraints", "deepening", "concretizing", "reasoning")

METHODS: Mapping[str, Mapping[str, str]] = {
    "evol_instruct": {
        "constraints": "add a requirement",
        "deepening": "ask further and wider",
        "concretizing": "replace general notions by particular ones",
        "reasoning": "ask for several steps of reasoning",
        "breadth": "another prompt of the same field, rarer than this one",
    },
    "evol_complexity": {
        "constraints": "add a requirement",
        "deepening": "ask further and wider",
        "concretizing": "replace general notions by particular ones",
        "reasoning": "ask for several steps of reasoning",
    },
    "evol_quality": {
        "helpfulness": "say what the answer is for, so that it can be of more use",
        "relevance": "leave out what does not matter and say what does",
        "deepening": "ask for the reasons and the fine points",
        "creativity": "ask for something that is not the obvious",
        "details": "give and ask for particulars",
    },
    "self_instruct": {
        "new": "a new task of another kind",
    },
    "appendix_f": {
        "persona": "as another kind of person would ask it",
        "shift-in": "the same idea in another part of the same field",
        "shift-out": "the same idea about something else altogether",
        "mix": "the idea joined with something of another field",
        "abstract": "the principle behind the particular case",
        "constraints": "add a requirement that changes the answer",
        "deepening": "ask further and wider",
        "concretizing": "replace general notions by particular ones",
        "reasoning": "ask for several steps, and for why each holds",
        "expansion": "add viewpoints, cases or fields to be compared",
    },
}
"""The methods of each scheme by name, and what each does to a prompt."""
