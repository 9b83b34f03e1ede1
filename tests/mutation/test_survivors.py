"""The list of survivors is of the code as it is."""

from mutate import ROOT, known, mutants


def test_every_survivor_listed_is_a_change_that_would_be_tried_and_has_a_reason() -> None:
    rows = known()
    tried = {it.key for file in {row["file"] for row in rows} for it in mutants(ROOT / file)}
    listed = [(row["file"], row["where"], row["before"], row["after"]) for row in rows]
    assert [key for key in listed if key not in tried] == []
    assert all(row["why"] for row in rows)
