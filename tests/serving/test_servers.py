"""Laws of a profile's servers: shared, taking turns, and none left behind, held to a stand-in."""

from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import pytest
from toy_servers import declared, served

from harness.errors import HarnessError, UserError
from harness.registry.serving import Serving
from harness.serving.servers import ServedPolicy, Servers

pytestmark = pytest.mark.usefixtures("starts")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    (tmp_path / "logs").mkdir()
    return tmp_path / "logs"


def serve(declared: Serving, logs: Path, **more: Any) -> Servers:
    return Servers(declared, logs, lambda model: logs / model.replace("/", "-"), **more)


def noted(starts: Path) -> list[tuple[str, str]]:
    """Return what the servers noted: `starts` or `ready`, and which."""
    return [(what, name.rpartition("/")[2]) for what, name, _ in lines(starts)]


def lines(starts: Path) -> list[list[str]]:
    """Return the words of each line; none has been written before the first server begins."""
    return [line.split() for line in starts.read_text().splitlines()] if starts.exists() else []


def processes(starts: Path) -> dict[str, psutil.Process]:
    found = {}
    for _, name, number in lines(starts):
        with suppress(psutil.NoSuchProcess):
            found[name.rpartition("/")[2]] = psutil.Process(int(number))
    return found


def test_a_role_is_started_when_first_held_and_shared_until_the_end(
    starts: Path, logs: Path
) -> None:
    waits: list[str] = []
    with serve(declared(creator=0.6), logs, on_wait=lambda what, _: waits.append(what)) as servers:
        assert noted(starts) == []
        with servers.hold("creator") as first:
            assert b"owner/creator" in urlopen(f"{first['creator']}/models").read()
        with servers.hold("creator") as again:
            assert first == again
        assert noted(starts) == [("starts", "creator"), ("ready", "creator")]
        assert [path.name for path in logs.iterdir()] == ["001-owner--creator.log"]
    assert set(waits) == {"owner/creator on vllm 0.30.0"}
    assert not psutil.Process().children(recursive=True)


def test_roles_that_do_not_fit_beside_each_other_take_turns(starts: Path, logs: Path) -> None:
    """Shares of 0.5, 0.3 and 0.7: the third needs the first one's place, which then needs both."""
    with serve(declared(creator=0.5, scorer=0.3, judge=0.7), logs) as servers:
        with servers.hold("creator", "scorer") as at:
            assert list(at) == ["creator", "scorer"]
            assert set(processes(starts)) == {"creator", "scorer"}
        with servers.hold("judge"):
            assert set(processes(starts)) == {"scorer", "judge"}
        with servers.hold("creator"):
            assert set(processes(starts)) == {"creator"}
        servers.stop()
        assert processes(starts) == {}
    loads = [name for what, name in noted(starts) if what == "starts"]
    assert loads == ["creator", "scorer", "judge", "creator"]


def test_roles_that_are_served_alike_have_one_server(starts: Path, logs: Path) -> None:
    alike = Serving(creator=served(), scorer=served())
    with serve(alike, logs) as servers, servers.hold("creator", "scorer") as at:
        assert at["creator"] == at["scorer"]
    assert len(noted(starts)) == 2


def test_a_policy_is_served_anew_for_each_checkpoint(starts: Path, logs: Path) -> None:
    policy = Serving(policy=served(model=None))
    with serve(policy, logs) as servers:
        for name in ("base", "trained"):
            with servers.hold("policy", policy=ServedPolicy(name, logs)) as at:
                assert name.encode() in urlopen(f"{at['policy']}/models").read()
                assert set(processes(starts)) == {name}


def test_roles_that_never_fit_beside_each_other_are_refused(logs: Path) -> None:
    said = pytest.raises(UserError, match=r"creator and judge are needed at once and take 1\.20")
    with serve(declared(creator=0.6, judge=0.6), logs) as servers, said:
        servers.hold("creator", "judge").__enter__()


def lose(servers: Servers, starts: Path) -> None:
    with servers.hold("judge"):
        processes(starts)["judge"].kill()
        raise ConnectionError("refused")


def test_a_server_that_dies_is_why_the_block_failed_and_is_started_again(
    starts: Path, logs: Path
) -> None:
    with serve(declared(judge=0.6), logs) as servers:
        with pytest.raises(HarnessError, match=r"owner/judge on vllm 0\.30\.0 died in the middle"):
            lose(servers, starts)
        with servers.hold("judge") as at:
            assert urlopen(f"{at['judge']}/models").status == 200
    assert [what for what, _ in noted(starts)] == ["starts", "ready"] * 2


def test_a_server_that_does_not_start_is_quoted_and_frees_the_gpu(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(declared(judge=0.6), logs) as servers:
        monkeypatch.setenv("FAKE_DIES_AT_START", "1")
        with pytest.raises(HarnessError, match=r"before it was ready .*head size 16"):
            servers.hold("judge").__enter__()
        monkeypatch.delenv("FAKE_DIES_AT_START")
        with servers.hold("judge"):
            pass


def test_the_server_that_was_used_least_recently_makes_room(starts: Path, logs: Path) -> None:
    with serve(declared(creator=0.4, scorer=0.4, judge=0.4), logs) as servers:
        for role in ("creator", "scorer", "creator", "judge"):
            with servers.hold(role):
                pass
        assert set(processes(starts)) == {"creator", "judge"}
