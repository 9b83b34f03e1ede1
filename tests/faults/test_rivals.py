"""Many processes on one store, one evaluation, one tracking server: each thing is done once."""

import signal

import pytest
from judging import Asked
from mlflow_runs import held, new_database
from scene import RUN, Done, Running, Scene

MOST = 16
OTHER = ("run", "table5", "--rows", "dpo-1", "--seeds", "0", "--jobs", "2", "--json")


def how_many(scene: Scene, quick: int) -> int:
    """Return how many rivals there are in a round: few in the quick form, up to 16 in the long."""
    return scene.dice.randrange(2, MOST + 1) if scene.is_long else quick


def test_rivals_on_one_store(scene: Scene) -> None:
    """All end well; a stage is computed by one of them, and the others wait for it."""
    calm, other = scene.calm(*RUN), scene.calm(*OTHER)
    asked = [OTHER if scene.dice.random() < 0.25 else RUN for _ in range(how_many(scene, 3))]
    running = [scene.start(*each, "--jobs", str(scene.dice.choice((1, 2)))) for each in asked]
    ended = [each.end() for each in running]
    for each, done in zip(asked, ended, strict=True):
        done.check_as(calm if each is RUN else other)
    wanted = {**calm.outputs, **other.outputs}
    assert scene.outputs().items() <= wanted.items()
    assert not list((scene.work / "store" / "failures").glob("*"))
    scene.check_once()


@pytest.mark.parametrize("tracked", [False, True])
def test_rivals_of_which_some_are_killed(scene: Scene, tracked: bool) -> None:
    """Whoever is left computes what the dead had begun; in the long form 5 of 16 are killed.

    Where they share a tracking server, every run stands in MLflow once all the same.
    """
    calms = {each: scene.calm(*each) for each in (RUN, OTHER)}
    uri: str = new_database(scene) if tracked else "toy://"
    number = MOST if scene.is_long else how_many(scene, 2)
    others = [RUN if tracked else scene.dice.choice((RUN, OTHER)) for _ in range(number - 1)]
    asked = [RUN, *others]
    running = [scene.start(*each, "--jobs", "1", MLFLOW_TRACKING_URI=uri) for each in asked]
    victims = scene.dice.sample(range(1, number), max(1, number // 3))
    for victim in victims:
        seconds = calms[RUN].seconds
        scene.kill_somehow(running[victim], seconds, lambda: len(scene.begun()), signal.SIGKILL)
    ended = [each.end() for each in running]
    whole = [position for position in range(number) if position not in victims]
    for position in whole:
        ended[position].check_as(calms[asked[position]])
    assert scene.outputs().items() >= calms[RUN].outputs.items()
    assert scene.outputs().items() <= {**calms[RUN].outputs, **calms[OTHER].outputs}.items()
    scene.check_once()
    if tracked:
        _check_tracked(scene, [ended[position] for position in whole], uri)


def _check_tracked(scene: Scene, ended: list[Done], uri: str) -> None:
    """Fail where a run stands in MLflow twice, or is not finished there."""
    if any("MLflow" in done.errors for done in ended):  # it was too slow for so many
        scene.call("sync", "table4", MLFLOW_TRACKING_URI=uri).well()
    runs = held(uri)
    doubled = [name for name, found in runs.items() if len(found) > 1]
    assert not doubled, "MLflow runs doubled"
    states = {name: found[0][0] for name, found in runs.items()}
    assert set(states.values()) == {"FINISHED"}, (states, [done.errors for done in ended])


def test_rivals_that_evaluate(scene: Scene) -> None:
    """Every judgment is paid once: the second command waits, or says that there is another."""
    with Asked(scene, questions=20) as asked:
        calm = asked.calm()
        number = how_many(scene, 2)
        running: list[Running] = [scene.start(*asked.command) for _ in range(number)]
        ended = [each.end() for each in running]
        twice = [n for n, times in asked.server.answered.items() if times > 1]
        assert not twice, "replies doubled"
    whole = [done for done in ended if done.code == 0]
    assert whole
    for done in whole:
        assert done.json[0]["scores"] == calm[0]["scores"]
    for done in ended:
        assert done.code == 0 or "another" in done.errors, done.errors


def test_rivals_on_one_tracking_server(scene: Scene) -> None:
    """Commands with work folders of their own write the same runs to one MLflow, each once."""
    first = scene.beside("work-0")
    uri = new_database(first)
    number = min(how_many(scene, 2), 6)
    running = [
        scene.beside(f"work-{i}").start(*RUN, "--jobs", "1", MLFLOW_TRACKING_URI=uri)
        for i in range(number)
    ]
    ended = [each.end() for each in running]
    for done in ended:
        done.well()
    _check_tracked(first, ended, uri)
