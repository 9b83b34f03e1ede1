"""A judge that fails in every way: no judgment is lost, paid twice, or other than it would be."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from judge_stand_in import Body, digest
from judging import CONCURRENCY, FAILURES, ODD, STRANGE, VOID, Answers, Asked
from scene import KEY, Scene

BUDGET = ("--budget-usd", "2")
UNDISTURBED_S = 60.0
"""In so many seconds an evaluation ends whose every request fails once."""


Fails = Callable[[Body, int], Answers | None]


def first_time(ways: dict[str, Answers], dice: random.Random) -> Fails:
    """Return what lets every request fail in one of some ways when it first comes."""
    names = sorted(ways)
    dice.shuffle(names)

    def fail(body: Body, times: int) -> Answers | None:
        return ways[names[digest(body) % len(names)]] if times == 1 else None

    return fail


def test_judges_that_fail_once(scene: Scene) -> None:
    """Every request fails at first, each in a way of its own; the scores are the usual ones."""
    fails = first_time(FAILURES, scene.dice)
    with Asked(scene, 12, fails, TIMEOUT="1") as asked:
        calm = asked.calm()
        done = scene.call(*asked.command, limit_s=UNDISTURBED_S)
        assert done.code == 0, done.errors
        assert done.json[0]["scores"] == calm[0]["scores"]
        again(scene, asked)
    assert KEY not in done.out + done.errors


def test_judges_that_reply_oddly(scene: Scene) -> None:
    """What a reply has beside its verdict changes nothing: it is kept, and paid once."""
    names = sorted(ODD)
    turn = scene.dice.randrange(len(names))

    def odd(body: Body, times: int) -> Answers:
        return ODD[names[(digest(body) + turn) % len(names)]]

    with Asked(scene, 12, odd, BUDGET, TIMEOUT="1", PRICE="10,30") as asked:
        calm = asked.calm()
        done = scene.call(*asked.command, limit_s=UNDISTURBED_S)
        assert done.code == 0, done.errors
        assert done.json[0]["scores"] == calm[0]["scores"]
        again(scene, asked)
    (paid,) = re.findall(r"\$([0-9.,]+)", done.errors)[-1:]
    assert float(paid.replace(",", "")) <= 2.0, done.errors


def test_judges_that_say_nothing(scene: Scene) -> None:
    """A reply without a rating is a lost item, told as such, and is not asked for again."""
    names = sorted(VOID)
    turn = scene.dice.randrange(len(names))

    def void(body: Body, times: int) -> Answers:
        return VOID[names[(digest(body) + turn) % len(names)]]

    with Asked(scene, 12, void, TIMEOUT="1") as asked:
        for _ in range(2):
            kept, seen = asked.kept(), dict(asked.server.seen)
            done = scene.call(*asked.command, limit_s=UNDISTURBED_S)
            assert done.code in (0, 1), done
            assert "harness: " in done.errors or done.code == 0, done.errors
            asked.check_kept(kept, seen)


def test_judges_that_always_fail(scene: Scene) -> None:
    """The command ends, says in a sentence what is wrong, and the next one goes on."""
    name = scene.dice.choice(sorted(FAILURES)) if scene.is_long else "deep"
    broken = True

    def fail(body: Body, times: int) -> Answers | None:
        return FAILURES[name] if broken else None

    with Asked(scene, 12, fail, TIMEOUT="0.5") as asked:
        calm = asked.calm()
        done = scene.call(*asked.command, limit_s=UNDISTURBED_S)
        assert done.code == 1, (name, done)
        assert done.errors.count("harness: ") >= 1, (name, done.errors)
        assert max(asked.server.seen.values()) <= 8, name
        broken = False
        done = scene.call(*asked.command)
        assert done.code == 0, done.errors
        assert done.json[0]["scores"] == calm[0]["scores"]


def test_judges_that_send_requests_elsewhere(scene: Scene) -> None:
    """Nothing is sent on; the command ends with a sentence after the requests under way."""
    name = scene.dice.choice(sorted(STRANGE))
    with Asked(scene, 12, lambda body, times: STRANGE[name], TIMEOUT="1") as asked:
        done = scene.call(*asked.command, limit_s=UNDISTURBED_S)
        assert done.code == 2, (name, done)
        assert "which is not followed" in done.errors, done.errors
        assert asked.server.requests <= 2 * CONCURRENCY
        assert max(asked.server.seen.values()) == 1


def test_kept_replies_with_a_flipped_bit(scene: Scene) -> None:
    """A damaged reply is asked for again, which is said, and the scores are the usual ones."""
    with Asked(scene, 12) as asked:
        first = scene.call(*asked.command)
        assert first.code == 0, first.errors
        before = dict(asked.server.seen)
        (path,) = (scene.work / "replies").glob("*.jsonl")
        kept = bytearray(path.read_bytes())
        kept[scene.dice.randrange(len(kept))] ^= 1 << scene.dice.randrange(7)
        path.write_bytes(kept)
        second = scene.call(*asked.command)
        assert second.code == 0, second.errors
        assert second.json[0]["scores"] == first.json[0]["scores"]
        # A bit of a line's end joins it to the next one.
        repeated = sum(asked.server.seen.values()) - sum(before.values())
        assert 1 <= repeated <= 2
        again(scene, asked)


def again(scene: Scene, asked: Asked) -> None:
    """Fail where the same command again asks for anything."""
    kept, seen = asked.kept(), dict(asked.server.seen)
    assert scene.call(*asked.command).code == 0
    asked.check_kept(kept, seen)
    assert dict(asked.server.seen) == seen
