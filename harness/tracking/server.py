"""The writing side: brings an MLflow server to hold what a record says, by MLflow's public client.

MLflow can add to a run but take almost nothing back: parameters never change, points and data sets
stay. So a record that grows (a run, a trial) is completed, and any other that has changed is
deleted and written afresh. The tag with the record's digest comes last, which is what makes an
unchanged run cost nothing and one whose writer was killed be written again. A new run takes three
calls, whatever it holds: create, end, and one batch.

A work folder writes to a server one process at a time (`Connection.writing`).
"""

from __future__ import annotations

import getpass
import json
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from mlflow import MlflowClient, entities
from mlflow.entities import Metric, Param, Run, RunTag
from mlflow.exceptions import MlflowException

from harness.tracking.record import (
    DIGEST,
    FILES,
    ID,
    MODEL,
    NOTE_TAG,
    Dataset,
    Record,
    metric_name,
    point_ms,
)
from harness.tracking.view import FIRST_VIEW, SHARED

if TYPE_CHECKING:
    from mlflow.store.entities import PagedList
    from pyarrow import DataType

Change: TypeAlias = Literal["created", "updated", "replaced", "unchanged"]

_Item = TypeVar("_Item")
_OURS = ("harness.", "stage.", "version.", "failure")
_FEW = 4
"""Most runs that are searched for by their identities."""


class Server:
    """An MLflow server, or a database used without one.

    It decides where artifacts are, unless their folder is given.
    """

    def __init__(self, uri: str, artifacts: Path | None) -> None:
        self._client = MlflowClient(tracking_uri=uri)
        self._artifacts = artifacts
        self._experiments: dict[str, str] = {}
        self._user = "unknown"
        with suppress(OSError, KeyError):
            self._user = getpass.getuser()
        self._client.search_experiments(max_results=1)

    def set_aside_moved(self) -> list[str]:
        """Put away the experiments whose artifacts are in the folder that this one was copied from.

        MLflow keeps the absolute address of an experiment's artifacts: whatever is written to one
        of these would be written there. They are renamed and deleted in MLflow, which deletes no
        file; their runs are written anew when they are synced. Returns their names.
        """
        if self._artifacts is None:
            return []
        moved = [
            (experiment, place)
            for experiment in self._all_experiments()
            if experiment.artifact_location != (place := self._place(experiment.name))
            and str(experiment.artifact_location).endswith(
                str(place).removeprefix(self._artifacts.parent.as_uri())
            )
        ]
        for experiment, _ in moved:
            number = experiment.experiment_id
            self._client.rename_experiment(number, f"{experiment.name} (moved, {number})")
            self._client.delete_experiment(number)
        return [experiment.name for experiment, _ in moved]

    def find(self, records: Sequence[Record]) -> dict[str, list[Run]]:
        """Return the runs there are of some records, by identity."""
        self._experiments.clear()  # somebody may have deleted one since
        places = {record.identity: self._experiment(record) for record in records}
        asked = [""]
        if len(places) <= _FEW:
            asked = [f"tags.`{ID}` = '{identity}'" for identity in places]
        found: dict[str, list[Run]] = {}
        for wanted in asked:
            for run in self._search(list(dict.fromkeys(places.values())), wanted):
                found.setdefault(run.data.tags[ID], []).append(run)
        return found

    def apply(
        self, record: Record, found: Iterable[Run], *, afresh: bool = False
    ) -> tuple[Change, str]:
        """Bring MLflow to hold what a record says; return what was done, and the run's id there.

        `found` are the runs of that identity it holds now; all but the first are deleted. With
        `afresh` what has changed is never completed: it may hold points of a lost attempt.
        """
        run, *spare = [*found] or [None]
        for other in spare:
            self._delete(other)
        if run is None:
            return "created", self._write(record, self._create(record))
        if run.data.tags.get(DIGEST) == record.digest:
            return "unchanged", str(run.info.run_id)
        if not afresh and _completes(record, run):
            return "updated", self._write(record, run)
        self._delete(run)
        return "replaced", self._write(record, self._create(record))

    def add_points(self, run_id: str, metrics: list[Metric]) -> None:
        """Add points to a run, any number."""
        self._client.log_batch(run_id, metrics=metrics)

    def end_stale(self, known: Collection[str], computing: Collection[str]) -> None:
        """End the runs, of those that this work folder knows, that nothing computes any more."""
        if not known:
            return
        numbers = [experiment.experiment_id for experiment in self._all_experiments()]
        for run in self._search(numbers, "attributes.status = 'RUNNING'"):
            identity = run.data.tags[ID]
            if identity in known and identity not in computing:
                if DIGEST in run.data.tags:  # without it, it is written again when it goes on
                    self._client.delete_tag(run.info.run_id, DIGEST)
                self._client.set_terminated(run.info.run_id, "KILLED")

    def views(self) -> dict[str, str]:
        """Return the ids of the experiments that have a first view, by name: sweeps are last."""
        tag = f"{SHARED}{FIRST_VIEW}"
        found = {e.name: str(e.experiment_id) for e in self._all_experiments() if tag in e.tags}
        return {name: found[name] for name in sorted(found, key=_as_people_sort)}

    def _all_experiments(self) -> list[entities.Experiment]:
        return _all_pages(lambda token: self._client.search_experiments(page_token=token))

    def _search(self, experiments: list[str], wanted: str) -> list[Run]:
        """Return all of our runs that a filter finds."""
        if not experiments:
            return []
        found: list[Run] = _all_pages(
            lambda token: self._client.search_runs(
                experiments, wanted, max_results=1000, page_token=token
            )
        )
        return [run for run in found if ID in run.data.tags]

    def _experiment(self, record: Record) -> str:
        """Return an experiment's id, creating it or taking it back from the deleted ones."""
        name = record.experiment
        if name not in self._experiments:
            found = self._client.get_experiment_by_name(name)
            if found is None:
                number = self._client.create_experiment(name, self._place(name))
                found = self._client.get_experiment(number)
            if found.lifecycle_stage == "deleted":
                self._client.restore_experiment(found.experiment_id)
            for key, text in {NOTE_TAG: record.note, **record.view}.items():
                if found.tags.get(key) != text:
                    self._client.set_experiment_tag(found.experiment_id, key, text)
            self._experiments[name] = found.experiment_id
        return self._experiments[name]

    def _place(self, experiment: str) -> str | None:
        return None if self._artifacts is None else (self._artifacts / experiment).as_uri()

    def _create(self, record: Record) -> Run:
        tags = {**record.tags, ID: record.identity, "mlflow.user": self._user}
        return self._client.create_run(self._experiment(record), record.start_ms, tags, record.name)

    def _write(self, record: Record, run: Run) -> str:
        """Write what a run lacks, and last the tag that says all is there."""
        run_id, held = str(run.info.run_id), run.data.tags
        if run.info.run_name != record.name:
            self._client.update_run(run_id, name=record.name)
        model, linked = self._write_model(run, record)
        datasets = _datasets(record, without=_held_datasets(run))
        if datasets:
            self._client.log_inputs(run_id, datasets)
        wanted = {**record.tags, **model, ID: record.identity, **self._write_files(run, record)}
        if record.describe is not None:
            wanted[NOTE_TAG] = record.describe()
        for name in held:
            if name.startswith(_OURS) and name not in wanted and name != DIGEST:
                self._client.delete_tag(run_id, name)
        if record.status != "RUNNING":
            self._client.set_terminated(run_id, record.status, record.end_ms)
        elif run.info.status != "RUNNING":
            self._client.update_run(run_id, status="RUNNING")
        tags = [RunTag(name, text) for name, text in wanted.items() if held.get(name) != text]
        params = sorted(record.params.items() - run.data.params.items())
        self._client.log_batch(
            run_id,
            metrics=_with_scores(list(_metrics(record)), linked),
            params=[Param(*item) for item in params],
            tags=[*tags, RunTag(DIGEST, record.digest)],
        )
        return run_id

    def _write_files(self, run: Run, record: Record) -> dict[str, str]:
        """Write the artifacts of a run that has ended; return the tag that says so."""
        files, run_id = record.files, run.info.run_id
        if files is None or record.status == "RUNNING":
            return {}
        if run.data.tags.get(FILES) != files.digest:
            made = files.make()
            with tempfile.TemporaryDirectory() as folder:
                for path, content in made.items():
                    if isinstance(content, bytes):
                        target = Path(folder, path)
                        target.parent.mkdir(parents=True, exist_ok=True)
                        target.write_bytes(content)
                self._client.log_artifacts(run_id, folder)
            for path, content in made.items():
                if not isinstance(content, bytes):
                    self._client.log_table(run_id, {n: [*v] for n, v in content.items()}, path)
        return {FILES: files.digest}

    def _write_model(self, run: Run, record: Record) -> tuple[dict[str, str], list[Metric]]:
        """Log the policy of a run; return the tag that names it, and the scores it is to have."""
        if record.model is None or record.status == "RUNNING":
            return {}, []
        held, wanted = run.data.tags.get(MODEL), record.model
        if held is not None:
            return {MODEL: held}, []
        tags = {**wanted.tags, "harness.location": wanted.location}
        logged = self._client.create_logged_model(
            self._experiment(record), wanted.name, run.info.run_id, tags, dict(wanted.params),
            "policy",
        )  # fmt: skip
        model = str(logged.model_id)
        self._client.finalize_logged_model(model, entities.LoggedModelStatus.READY)
        self._client.log_outputs(run.info.run_id, [entities.LoggedModelOutput(model, 0)])
        scores = record.read_scores().items()
        return {MODEL: model}, [Metric(n, v, record.start_ms, 0, model_id=model) for n, v in scores]

    def _delete(self, run: Run) -> None:
        """Delete a run and the model logged of it."""
        self._client.delete_run(run.info.run_id)
        if MODEL in run.data.tags:
            with suppress(MlflowException):  # somebody has deleted it before
                self._client.delete_logged_model(run.data.tags[MODEL])


def point_metrics(
    prefix: str, start_ms: int, step: int, values: Mapping[str, float]
) -> Iterator[Metric]:
    """Yield one point of curves as MLflow takes it."""
    time = point_ms(start_ms, step)
    for name, value in values.items():
        yield Metric(metric_name(prefix + name), value, time, step)


def _metrics(record: Record) -> Iterator[Metric]:
    """Yield all points a record says; MLflow drops those that it has."""
    for name, value in record.read_scores().items():
        yield Metric(name, value, record.start_ms, 0)
    for metric, at in record.by_step.items():
        for step, value in at.items():
            yield Metric(metric, value, record.start_ms, step)
    for prefix, curves in record.curves.items():
        for point in curves.read():
            yield from point_metrics(prefix, record.start_ms, point.step, point.metrics)


def _completes(record: Record, run: Run) -> bool:
    """Return whether a record only adds to a run, and takes nothing back.

    One that had ended before it was whole may hold points of the attempt that was lost.
    """
    held, files = run.data, run.data.tags.get(FILES)
    return (
        record.grows
        and run.info.status in ("RUNNING", "FINISHED")
        and run.info.start_time == record.start_ms
        and all(record.params.get(key) == text for key, text in held.params.items())
        and _held_datasets(run) <= {(d.name, d.digest) for d in record.datasets}
        and (files is None or record.files is None or record.files.digest == files)
    )


def _all_pages(ask: Callable[[str | None], PagedList[_Item]]) -> list[_Item]:
    """Return the items of all pages, which are asked for by the token of the page before."""
    found: list[_Item] = []
    token = None
    while True:
        page = ask(token)
        found += page
        token = page.token
        if not token:
            return found


def _as_people_sort(name: str) -> tuple[bool, list[tuple[str, int]]]:
    """Return what sorts table 9 before table 10, and sweeps after both."""
    parts = [(text, int(part or 0)) for text, part in re.findall(r"(\D+)(\d*)", name)]
    return name.startswith("sweeps/"), parts


def _with_scores(metrics: list[Metric], linked: list[Metric]) -> list[Metric]:
    """Return points, and with them those that belong to a model as well."""
    keys = {(metric.key, metric.step) for metric in linked}
    return [*(m for m in metrics if (m.key, m.step) not in keys), *linked]


def _held_datasets(run: Run) -> set[tuple[str, str]]:
    inputs = run.inputs.dataset_inputs if run.inputs else []
    return {(held.dataset.name, held.dataset.digest) for held in inputs}


def _datasets(record: Record, without: set[tuple[str, str]]) -> list[entities.DatasetInput]:
    return [
        entities.DatasetInput(
            _dataset(dataset), [entities.InputTag("mlflow.data.context", dataset.context)]
        )
        for dataset in record.datasets
        if (dataset.name, dataset.digest) not in without
    ]


def _dataset(dataset: Dataset) -> entities.Dataset:
    """Return a data set as MLflow shows it, with its source, columns and number of rows."""
    import pyarrow.parquet as pq

    path = dataset.locate()
    found = pq.read_metadata(path)
    columns = [
        {"name": field.name, "type": _type(field.type), "required": True}
        for field in found.schema.to_arrow_schema()
    ]
    return entities.Dataset(
        name=dataset.name,
        digest=dataset.digest,
        source_type="local",
        source=json.dumps({"uri": str(path)}),
        schema=json.dumps({"mlflow_colspec": columns}),
        profile=json.dumps({"num_rows": found.num_rows}),
    )


def _type(found: DataType) -> str:
    """Return MLflow's word for the type of a column."""
    words = {"int64": "long", "int32": "integer", "double": "double", "float": "float",
             "bool": "boolean"}  # fmt: skip
    return words.get(str(found), "string")
