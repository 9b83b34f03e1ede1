"""Laws of the creator that has a model rewrite, over anything that writes text."""

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.eva.evolving import Evolution, EvolveOne, Prompt, evolve
from harness.worlds.real.creator import (
    CUT,
    REFUSED,
    EndpointGenerator,
    ModelCreator,
    Written,
    load_method,
)

PARENT = "How do I plant tomatoes on a small balcony?"
GOOD = "How do I plant tomatoes on a small, shady balcony that carries at most 80 kg?"
PLAIN = {"breadth": "B {prompt}", "constraints": "C {prompt}"}


def marked(text: str) -> str:
    return f"Sure: <new_prompt>\n{text}</new_prompt>"


class Writer(EndpointGenerator):
    """A generator that writes what a function says, and remembers what it was asked."""

    def __init__(self, write: Callable[[str, int], str | Written]) -> None:
        self._write = write
        self._guard = threading.Lock()
        self.asked: list[tuple[str, int]] = []

    def write(self, message: str, sample: int, label: str) -> Written:
        with self._guard:
            self.asked.append((message, sample))
        said = self._write(message, sample)
        return said if isinstance(said, Written) else Written(marked(said))


def rewritten(
    said: str | Written, told: Mapping[str, str] = PLAIN, parent: str = PARENT
) -> tuple[str | None, str | None]:
    creator = ModelCreator(Writer(lambda message, sample: said), told)
    rewrite = creator.rewrite(parent, np.random.default_rng(0))
    return rewrite.prompt, rewrite.reason


def test_a_method_is_drawn_uniformly_and_a_new_sample_each_time() -> None:
    """Of 2,000 draws each of ten methods gets 200, give or take 5 standard deviations (67)."""
    writer = Writer(lambda message, sample: GOOD)
    creator = ModelCreator(writer, load_method("appendix_f")["messages"])
    rng = np.random.default_rng(7)
    drawn = Counter(creator.rewrite(PARENT, rng).method for _ in range(2000))
    assert set(drawn) == set(creator.messages)
    assert all(abs(count - 200) <= 67 for count in drawn.values())
    assert len({sample for _, sample in writer.asked}) == 2000


@given(st.text())
def test_a_prompt_is_put_in_as_it_is(prompt: str) -> None:
    """Also one that holds braces or placeholders itself."""
    for text in (prompt, prompt + "{prompt}", "{" + prompt + "}"):
        writer = Writer(lambda message, sample: GOOD)
        creator = ModelCreator(writer, {"new": "[{prompt}]"})
        rewrite = creator.rewrite(text, np.random.default_rng(0))
        assert [message for message, _ in writer.asked] == [f"[{text}]"]
        assert (rewrite.method, rewrite.written) == ("new", marked(GOOD))


@pytest.mark.parametrize(
    ("said", "prompt", "reason"),
    [
        (f"  {GOOD}\n", GOOD, None),
        (f'"{GOOD}"', GOOD, None),
        (f"“{GOOD}”", GOOD, None),
        ('"Why" and "how" do tomatoes grow?', '"Why" and "how" do tomatoes grow?', None),
        (PARENT.upper(), None, "unchanged"),
        (Written(f"<new_prompt>A draft</new_prompt> {marked(GOOD)} Enjoy."), GOOD, None),
        (Written(GOOD), None, "unmarked"),
        (Written(f"<new_prompt>{GOOD}"), None, "unmarked"),
        (Written(GOOD, CUT), None, "cut off"),
        (Written(GOOD, REFUSED), None, "refusal"),
    ],
)
def test_a_reply_becomes_a_prompt_or_a_reason(
    said: str | Written, prompt: str | None, reason: str | None
) -> None:
    assert rewritten(said) == (prompt, reason)


def test_quotes_that_the_parent_has_stay() -> None:
    assert rewritten('"To be at ease"', parent='"To be or not to be"') == ('"To be at ease"', None)


def test_what_the_templates_say_is_a_leftover_but_what_the_prompt_says_is_not() -> None:
    words = "one two three four five six seven eight"
    told = {"new": words + " {prompt}"}
    assert rewritten(f"{GOOD} {words}", told) == (None, "leftover")
    long = "Which of these nine words is the longest one here?"
    assert rewritten(long + " And why?", told, parent=long) == (long + " And why?", None)


def numbered(message: str, sample: int) -> str:
    """A rewrite that depends on the message and the sample alone; every third is empty."""
    if sample % 3 == 0:
        return "..."
    return f"How would you answer question {sample} about this: {message[2:40]}?"


def evolved(
    names: Sequence[str], over: Callable[[EvolveOne, Sequence[Prompt]], object] = map
) -> Evolution:
    prompts = [Prompt(name, f"What is {name} good for?") for name in names]
    creator = ModelCreator(Writer(numbered), PLAIN)
    return evolve(prompts, creator, evolutions=4, retries=2, seed=5, over=over)  # type: ignore[arg-type]


def test_an_unusable_rewrite_is_tried_again_with_another_sample_and_the_lineage_says_so() -> None:
    writer = Writer(numbered)
    prompts = [Prompt(name, f"What is {name} good for?") for name in "abcdefgh"]
    result = evolve(prompts, ModelCreator(writer, PLAIN), evolutions=4, retries=2, seed=5)
    assert result.attempts == len(writer.asked) == len(set(writer.asked))
    assert result.unusable["empty"] == result.attempts - len(result.prompts) > 0
    texts = {prompt.prompt_id: prompt.prompt for prompt in [*prompts, *result.prompts]}
    children = {prompt.prompt_id: prompt for prompt in result.prompts}
    for tried, (message, sample) in zip(result.tried, writer.asked, strict=True):
        assert message == f"{tried.method[0].upper()} {texts[tried.parent_id]}"
        assert (tried.reason == "empty") == (sample % 3 == 0)
        assert tried.written
        if tried.reason is None:
            child = children[tried.child_id]
            assert (child.parent_id, child.method) == (tried.parent_id, tried.method)
    attempts = Counter[str]()
    for tried in result.tried:
        attempts[tried.child_id] += 1
        assert tried.attempt == attempts[tried.child_id] <= 3
    assert result.dropped + len(children) == 4 * len(prompts)


def test_many_chains_at_once_give_what_they_give_one_after_the_other() -> None:
    """Threads that finish in reverse: each waits for the one after it."""

    def backwards(evolve_one: EvolveOne, prompts: Sequence[Prompt]) -> list[Evolution]:
        done = [threading.Event() for _ in range(len(prompts) + 1)]
        found: dict[int, Evolution] = {}
        done[-1].set()

        def work(place: int) -> None:
            done[place + 1].wait(30)
            found[place] = evolve_one(prompts[place])
            done[place].set()

        threads = [threading.Thread(target=work, args=(i,)) for i in range(len(prompts))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        return [found[place] for place in range(len(prompts))]

    assert evolved("abcdef", backwards) == evolved("abcdef")
