"""What a policy is told when it revises its answers, outside the embedded world.

The embedded policy knows one sentence (`harness.worlds.embedded.language.REVISE`). Others are told
what a revision should be better at, and to keep its length, so that training on revisions does not come
down to training on longer answers. The wording is this project's own; what it asks for is the
paper's.

Source: paper appendix H.2.1.
"""

from __future__ import annotations

from harness.catalogue.profile import WORLD, Profile
from harness.store.fingerprint import Json

INSTRUCTION = """Rewrite your answer to my message above so that it is better: more helpful, more \
relevant to what I asked, deeper, more creative and more detailed where that helps. Correct \
whatever is wrong. Keep it about as long as it is now.

Write the new answer and nothing else: no remarks about the old one or about what you changed."""
"""The user's message after the answer that is revised."""


def rewriter_settings(profile: Profile) -> dict[str, Json]:
    """Return the settings that identify what a profile's policy is told; none for the embedded."""
    return {} if profile.policy == WORLD else {"instruction": INSTRUCTION}
