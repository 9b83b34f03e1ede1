"""A judge that fails in every way: no judgment is lost, paid twice, or other than it would be."""

import random
import re
from collections.abc import Callable

from judge_stand_in import Body, digest
from judging import FAILURES, ODD, VOID, Answers, Asked
from scene import KEY, Done, Scene

BUDGET = ("--budget-usd", "2")
UNDISTURBED_S = 60.0
"""In so many seconds an evaluation ends whose every request fails once."""


Fails = Callable[[Body, int], Answers | None]


def one_of(ways: dict[str, Answers], dice: random.Random, *, once: bool = False) -> Fails:
    """Return what answers every request in one of some ways, or only when it first comes."""
    names = sorted(ways)
    dice.shuffle(names)

    def instead(body: Body, times: int) -> Answers | None:
        return None if once and times > 1 else ways[names[digest(body) % len(names)]]

    return instead


def asks_well(scene: Scene, asked: Asked, limit_s: float = UNDISTURBED_S) -> Done:
    """Run the command to its end; fail where its scores are not the usual ones."""
    calm = asked.calm()
    done = scene.call(*asked.command, limit_s=limit_s).well()
    assert done.json[0]["scores"] == calm[0]["scores"]
    return done


def test_judges_that_fail_once(scene: Scene) -> None:
    """Every request fails at first, each in a way of its own; the scores are the usual ones."""
    with Asked(scene, 12, one_of(FAILURES, scene.dice, once=True), TIMEOUT="1") as asked:
        done = asks_well(scene, asked)
        again(scene, asked)
    assert KEY not in done.out + done.errors


def test_judges_that_reply_oddly(scene: Scene) -> None:
    """What a reply has beside its verdict changes nothing: it is kept, and paid once."""
    odd = one_of(ODD, scene.dice)
    with Asked(scene, 12, odd, BUDGET, TIMEOUT="1", PRICE="10,30") as asked:
        done = asks_well(scene, asked)
        again(scene, asked)
    (paid,) = re.findall(r"\$([0-9.,]+)", done.errors)[-1:]
    assert float(paid.replace(",", "")) <= 2.0, done.errors


def test_judges_that_say_nothing(scene: Scene) -> None:
    """A reply without a rating is a lost item, told as such, and is not asked for again."""
    with Asked(scene, 12, one_of(VOID, scene.dice), TIMEOUT="1") as asked:
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
        done = scene.call(*asked.command, limit_s=UNDISTURBED_S)
        assert done.code == 1, (name, done)
        assert done.errors.count("harness: ") >= 1, (name, done.errors)
        assert max(asked.server.seen.values()) <= 8, name
        broken = False
        asks_well(scene, asked)


def test_kept_replies_with_a_flipped_bit(scene: Scene) -> None:
    """A damaged reply is asked for again, which is said, and the scores are the usual ones."""
    with Asked(scene, 12) as asked:
        asks_well(scene, asked)
        before = dict(asked.server.seen)
        (path,) = (scene.work / "replies").glob("*.jsonl")
        kept = bytearray(path.read_bytes())
        kept[scene.dice.randrange(len(kept))] ^= 1 << scene.dice.randrange(7)
        path.write_bytes(kept)
        asks_well(scene, asked)
        # A bit of a line's end joins it to the next one.
        repeated = sum(asked.server.seen.values()) - sum(before.values())
        assert 1 <= repeated <= 2
        again(scene, asked)


def again(scene: Scene, asked: Asked) -> None:
    """Fail where the same command again asks for anything."""
    kept, seen = asked.kept(), dict(asked.server.seen)
    scene.call(*asked.command).well()
    asked.check_kept(kept, seen)
    assert dict(asked.server.seen) == seen
