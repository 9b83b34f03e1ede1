"""The writing side: brings an MLflow server to hold what a record says.

MLflow can add to a run but take almost nothing back: parameters never change, points and data
sets stay. So a run that lacks something is completed, and a run that holds something the record
does not say (a score of other seeds, a curve of a training that was computed anew) is deleted and
written afresh. Tags say what was written completely, which is what makes an unchanged run cost
nothing: one search finds all runs of an experiment with their tags.

Several work folders may write to one server, and MLflow creates whatever it is told to create. So
whoever has created a run looks whether there are others of its identity, and all but the first in
an order that everybody agrees on are deleted, by everybody who sees them. The last to look sees
all, so one is left; and whose run was deleted leaves the field to the other.
"""

from __future__ import annotations

import getpass
import json
import re
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from mlflow import MlflowClient, entities
from mlflow.entities import Metric, Run, RunTag
from mlflow.exceptions import MlflowException
from mlflow.store.tracking.dbmodels.models import SqlRun, SqlTag
from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore
from sqlalchemy import and_, select
from sqlalchemy.orm import aliased

from harness.tracking.record import (
    CURVE,
    DIGEST,
    FILES,
    FIRST_VIEW,
    FOLDER,
    ID,
    MODEL,
    NOTE_TAG,
    SEEN,
    SHARED,
    SYSTEM,
    Dataset,
    Record,
    metric_name,
    point_ms,
    readable,
)

if TYPE_CHECKING:
    from mlflow.store.entities import PagedList
    from pyarrow import DataType

Change: TypeAlias = Literal["created", "updated", "replaced", "unchanged", "kept"]

SILENT_S = 300.0
"""Seconds without a sign of life after which another work folder's run is not computed any more."""

_Item = TypeVar("_Item")
_OURS = ("harness.", "state.", "stage.", "version.", "failure")
_LINK_TO_NOTHING = re.compile(r"\[([^\]]*)\]\(#/experiments/0/[^)]*\)")
_NAMED_EXPERIMENT = re.compile(r"\{experiment:([^}]+)\}")
_FEW = 4
"""Most runs that are searched for by their identities."""

_SHOWING = (ID, FOLDER, DIGEST, NOTE_TAG, MODEL)
"""Tags that show whether a run holds what its record says, and what goes with it."""


class _Overtaken(Exception):
    """A run was deleted while it was written: another process writes one of the same identity."""


class Server:
    """An MLflow server, or a database used without one.

    It decides where artifacts are, unless their folder is given.
    """

    def __init__(self, uri: str, artifacts: Path | None, folder: str) -> None:
        self._folder = folder
        self._client = MlflowClient(tracking_uri=uri)
        self._store = self._client._tracking_client.store
        self._artifacts = artifacts
        self._experiments: dict[str, str] = {}
        self._named: dict[str, str] = {}
        self._user = "unknown"
        with suppress(OSError, KeyError):
            self._user = getpass.getuser()
        self._client.search_experiments(max_results=1)

    def find(self, records: Sequence[Record]) -> dict[str, list[Run]]:
        """Return the runs there are of some records, by identity.

        Of a run in a database that holds what its record says, only the tags are read that show it.
        """
        self._experiments.clear()  # somebody may have deleted one since
        self._named.clear()
        return self._find(records)

    def _find(self, records: Sequence[Record]) -> dict[str, list[Run]]:
        places = {record.identity: self._experiment(record) for record in records}
        found: dict[str, list[Run]] = {}
        if isinstance(self._store, SqlAlchemyStore):
            is_few = len(places) <= _FEW
            found = self._tagged(set(places.values()), list(places) if is_few else [])
            for record in records:
                runs = found.get(record.identity, [])
                if len(runs) == 1 and not self._is_current(record, runs[0]):
                    found[record.identity] = [self._client.get_run(runs[0].info.run_id)]
        elif len(places) <= _FEW:
            found = {record.identity: self._same(record) for record in records}
        else:
            for run in self._search(list(dict.fromkeys(places.values())), ""):
                found.setdefault(run.data.tags[ID], []).append(run)
        return found

    def _same(self, record: Record) -> list[Run]:
        """Return the runs of a record's identity; of those in a database with few of their tags."""
        place, identity = self._experiment(record), record.identity
        if isinstance(self._store, SqlAlchemyStore):
            return self._tagged([place], [identity]).get(identity, [])
        return self._search([place], f"tags.`{ID}` = '{identity}'")

    def _tagged(self, places: Collection[str], identities: list[str]) -> dict[str, list[Run]]:
        """Return a database's runs by identity, of their tags those that show if they are current.

        All that MLflow says of a run takes it a hundred objects; most runs have not changed.
        """
        mine, tag = aliased(SqlTag), aliased(SqlTag)
        asked = (
            select(SqlRun.run_uuid, SqlRun.experiment_id, SqlRun.status, SqlRun.start_time,
                   tag.key, tag.value)
            .join(mine, and_(mine.run_uuid == SqlRun.run_uuid, mine.key == ID))
            .join(tag, and_(tag.run_uuid == SqlRun.run_uuid, tag.key.in_(_SHOWING)))
            .where(SqlRun.experiment_id.in_([int(place) for place in places]))
            .where(SqlRun.lifecycle_stage == "active")
        )  # fmt: skip
        if identities:
            asked = asked.where(mine.value.in_(identities))
        runs: dict[str, Run] = {}
        with self._store.ManagedSessionMaker() as session:
            for run_id, place, status, start, key, text in session.execute(asked):
                if run_id not in runs:
                    info = entities.RunInfo(run_id, str(place), "", status, start, None, "active")
                    runs[run_id] = Run(info, entities.RunData())
                runs[run_id].data.tags[key] = text
        found: dict[str, list[Run]] = {}
        for run in runs.values():
            found.setdefault(run.data.tags[ID], []).append(run)
        return found

    def _is_current(self, record: Record, run: Run) -> bool:
        """Return whether tags alone show that a run holds what a record says."""
        tags = run.data.tags
        ours = tags.get(FOLDER) == self._folder
        return ours and tags.get(DIGEST) == record.digest and not record.open

    def apply(self, record: Record, found: Iterable[Run], *, settle: bool) -> tuple[Change, str]:
        """Bring MLflow to hold what a record says; return what was done, and the run's id there.

        `found` are the runs of that identity it holds now. With `settle` the points of trainings
        that are not finished go as well; not while one of them may be running. A run is `kept`
        that another work folder has written completely, computes now, or writes at the same time.
        """
        given = list(found)
        run = self._first(record, given)
        if run is not None and len(given) != 1:
            run = self._client.get_run(run.info.run_id)
        if run is not None and self._stands(record, run):
            return "kept", run.info.run_id
        try:
            return self._apply(record, run, settle=settle)
        except _Overtaken as overtaken:
            return "kept", str(overtaken)

    def add_points(self, run_id: str, metrics: list[Metric]) -> bool:
        """Add points to a run, any number; return whether it is still there."""
        with suppress(_Overtaken), self._overtaken(run_id):
            self._client.log_batch(run_id, metrics=metrics)
            return True
        return False

    def sign(self, run_id: str) -> bool:
        """Note in a run that it is computed now; return whether it is still there."""
        with suppress(_Overtaken), self._overtaken(run_id):
            self._client.set_tag(run_id, SEEN, _now())
            return True
        return False

    def machine(self) -> dict[str, float]:
        """Return how busy the machine is, by the names of MLflow's system metrics."""
        from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
        from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor

        found: dict[str, float] = {}
        for kind in (CPUMonitor, GPUMonitor):
            try:
                monitor = kind()
                monitor.collect_metrics()
            except Exception:  # noqa: BLE001  no such device, or nothing that reads it
                continue
            found |= monitor.aggregate_metrics()
        return found

    def end_stale(self, computing: Collection[str]) -> None:
        """End the runs that are RUNNING and that nothing computes, here or elsewhere."""
        for run in self._running():
            if self._is_computed(run, computing):
                continue
            run_id, tags = run.info.run_id, run.data.tags
            with suppress(_Overtaken), self._overtaken(run_id):
                # Without its digest it is written again when it is computed again.
                for name in {DIGEST, SEEN} & tags.keys():
                    self._client.delete_tag(run_id, name)
                self._client.set_terminated(
                    run_id, "KILLED", round(1000 * float(tags.get(SEEN, _now())))
                )

    def _running(self) -> list[Run]:
        """Return all of our runs that are RUNNING, in whichever experiment."""
        experiments = [experiment.experiment_id for experiment in self._all_experiments()]
        return self._search(experiments, "attributes.status = 'RUNNING'")

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

    def _is_computed(self, run: Run, computing: Collection[str]) -> bool:
        """Return whether something computes a run that is RUNNING.

        This work folder knows its own, and those without a tag; others give signs of life where
        they can, and have the benefit of the doubt where they cannot (trials).
        """
        tags = run.data.tags
        if tags.get(FOLDER, self._folder) == self._folder:
            return tags[ID] in computing
        return float(_now()) - float(tags.get(SEEN, _now())) < SILENT_S

    def _stands(self, record: Record, run: Run) -> bool:
        """Return whether a run is left as another work folder has written it.

        That is a run which holds what the record says, or which is computed there and not here.
        """
        tags = run.data.tags
        if not record.reproducible or tags.get(FOLDER, self._folder) == self._folder:
            return False
        if run.info.status == "RUNNING":
            return record.status != "FINISHED" and self._is_computed(run, ())
        stages = {item for item in record.tags.items() if item[0].startswith("stage.")}
        return run.info.status == "FINISHED" and DIGEST in tags and stages <= tags.items()

    def _first(self, record: Record, found: list[Run]) -> Run | None:
        """Return the one run of an identity that is to stay; the others are deleted."""
        if len(found) != 1:
            found = self._same(record)
        found.sort(key=lambda run: (run.info.start_time, run.info.run_id))
        for spare in found[1:]:
            self._delete(spare)
        return found[0] if found else None

    def _apply(self, record: Record, run: Run | None, *, settle: bool) -> tuple[Change, str]:
        if run is None:
            return "created", self._write(record, None, _wanted_metrics(record))
        complete = run.data.tags.get(DIGEST) == record.digest
        loose = settle and self._loose(record, run)
        if complete and not loose:
            return self._relinked(record, run), run.info.run_id
        wrong = loose or _contradicts(record, run)
        missing = None if wrong else self._missing_metrics(record, run)
        if missing is None:
            self._delete(run)
            return "replaced", self._write(record, None, _wanted_metrics(record))
        return "updated", self._write(record, run, missing)

    def _relinked(self, record: Record, run: Run) -> Change:
        """Bring the links of a run's description up to date: a table may have been run since."""
        if record.reproducible and record.describe is not None:
            text = self._linked(record.describe())
            if run.data.tags.get(NOTE_TAG) != text:
                self._client.set_tag(run.info.run_id, NOTE_TAG, text)
                return "updated"
        return "unchanged"

    def _create(self, record: Record) -> Run:
        """Create a run; raise _Overtaken where another process has created the one that stays."""
        tags = {ID: record.identity, FOLDER: self._folder, "mlflow.user": self._user}
        run = self._client.create_run(self._experiment(record), record.start_ms, tags, record.name)
        first = self._first(record, [])
        if first is None or first.info.run_id != run.info.run_id:
            raise _Overtaken(run.info.run_id if first is None else first.info.run_id)
        return run

    @contextmanager
    def _overtaken(self, run_id: str) -> Iterator[None]:
        """Raise _Overtaken where what fails does so because another process deleted the run."""
        try:
            yield
        except MlflowException as error:
            if self._client.get_run(run_id).info.lifecycle_stage == "deleted":
                raise _Overtaken(run_id) from error
            raise

    def _experiment(self, record: Record) -> str:
        """Return an experiment's id, creating it or taking it back from the deleted ones."""
        name = record.experiment
        if name not in self._experiments:
            found = self._client.get_experiment_by_name(name)
            if found is None:
                found = self._new_experiment(record)
            if found.lifecycle_stage == "deleted":
                self._client.restore_experiment(found.experiment_id)
            for key, text in {NOTE_TAG: self._linked(record.note), **record.view}.items():
                if found.tags.get(key) != text:
                    self._client.set_experiment_tag(found.experiment_id, key, text)
            self._experiments[name] = found.experiment_id
        return self._experiments[name]

    def views(self) -> dict[str, str]:
        """Return the ids of the experiments that have a first view, by name, as people sort."""
        found = self._all_experiments()
        tag = f"{SHARED}{FIRST_VIEW}"
        numbers = {e.name: str(e.experiment_id) for e in found if tag in e.tags}
        return {name: numbers[name] for name in sorted(numbers, key=_as_people_sort)}

    def _linked(self, text: str) -> str:
        """Return a text with the ids of the experiments that it names.

        A link to one that is not there is left as its words.
        """

        def number(found: re.Match[str]) -> str:
            name = found[1]
            if name in self._experiments:
                return self._experiments[name]
            if name not in self._named:
                experiment = self._client.get_experiment_by_name(name)
                self._named[name] = "0" if experiment is None else str(experiment.experiment_id)
            return self._named[name]

        return _LINK_TO_NOTHING.sub(r"\1", _NAMED_EXPERIMENT.sub(number, text))

    def _new_experiment(self, record: Record) -> entities.Experiment:
        """Create an experiment, and return it or that of a process which was faster."""
        name = record.experiment
        place = (self._artifacts / name).resolve().as_uri() if self._artifacts else None
        try:
            self._client.create_experiment(name, place)
        except MlflowException as error:
            if error.error_code != "RESOURCE_ALREADY_EXISTS":
                raise
        return self._client.get_experiment_by_name(name)

    def _missing_metrics(self, record: Record, run: Run) -> list[Metric] | None:
        """Return the points a run lacks; None where it has points the record does not say."""
        keys = run.data.metrics.keys()
        missing = _wanted_metrics(record, skip=_complete_curves(record, run))
        by_key: dict[str, dict[tuple[object, ...], Metric]] = {}
        for metric in missing:
            by_key.setdefault(metric.key, {})[_point(metric)] = metric
        unread = (*_complete_curves(record, run), *record.open, SYSTEM)
        if any(key not in by_key and not key.startswith(unread) for key in keys):
            return None
        for key in by_key.keys() & keys:
            held = {_point(m) for m in self._client.get_metric_history(run.info.run_id, key)}
            if held - by_key[key].keys() and not key.startswith(record.open):
                return None
            missing = [m for m in missing if m.key != key or _point(m) not in held]
        return missing

    def _loose(self, record: Record, run: Run) -> bool:
        """Return whether a run holds points of a training stage that is not finished."""
        keys = [key for key in run.data.metrics if key.startswith(record.open)]
        if not keys:
            return False
        wanted = {(metric.key, _point(metric)) for metric in _wanted_metrics(record)}
        held = (m for key in keys for m in self._client.get_metric_history(run.info.run_id, key))
        return any((metric.key, _point(metric)) not in wanted for metric in held)

    def _write(self, record: Record, run: Run | None, metrics: list[Metric]) -> str:
        """Write what is missing, and last the tags that say all is there; raises _Overtaken."""
        run = self._create(record) if run is None else run
        run_id: str = run.info.run_id
        with self._overtaken(run_id):
            if run.info.run_name != record.name:
                self._client.update_run(run_id, name=record.name)
            extra, linked = self._write_model(run, record)
            params = record.params.items() - run.data.params.items()
            new = [entities.Param(key, text) for key, text in sorted(params)]
            self._client.log_batch(run_id, metrics=_with_scores(metrics, linked), params=new)
            datasets = _datasets(record, without=_held_datasets(run))
            if datasets:
                self._client.log_inputs(run_id, datasets)
            extra |= self._write_files(run, record)
            if record.status == "RUNNING":  # an end from before it went on cannot be taken back
                self._client.update_run(run_id, status="RUNNING")
            elif (run.info.status, run.info.end_time) != (record.status, record.end_ms):
                self._client.set_terminated(run_id, record.status, record.end_ms)
            self._write_tags(run_id, run.data.tags, record, extra)
        return run_id

    def _write_files(self, run: Run, record: Record) -> dict[str, str]:
        """Write the artifacts of a run that has ended; return the tags that say so."""
        files = record.files
        if files is None or record.status == "RUNNING":
            return {}
        tags = {FILES: files.digest}
        if files.tables:
            listed = [{"path": path, "type": "table"} for path in files.tables]
            tags["mlflow.loggedArtifacts"] = json.dumps(listed)
        if run.data.tags.get(FILES) != files.digest:
            with tempfile.TemporaryDirectory() as folder:
                for path, content in files.make().items():
                    target = Path(folder, path)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(content)
                self._client.log_artifacts(run.info.run_id, folder)
        return tags

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

    def _write_tags(
        self, run_id: str, held: Mapping[str, str], record: Record, extra: Mapping[str, str]
    ) -> None:
        wanted = {**record.tags, **extra, ID: record.identity, FOLDER: self._folder}
        if record.describe is not None:
            wanted[NOTE_TAG] = self._linked(record.describe())
        if record.status == "RUNNING" and record.reproducible:
            wanted[SEEN] = _now()
        wanted |= {f"{CURVE}{prefix[:-1]}": c.digest for prefix, c in record.curves.items()}
        for name in held:
            if name.startswith(_OURS) and name not in wanted and name != DIGEST:
                self._client.delete_tag(run_id, name)
        changed = [RunTag(name, text) for name, text in wanted.items() if held.get(name) != text]
        self._client.log_batch(run_id, tags=[*changed, RunTag(DIGEST, record.digest)])


def point_metrics(
    prefix: str, start_ms: int, step: int, values: Mapping[str, float]
) -> list[Metric]:
    """Return one point of curves as MLflow takes it."""
    time = point_ms(start_ms, step)
    return [Metric(metric_name(prefix + name), v, time, step) for name, v in values.items()]


def system_metrics(start_ms: int, readings: Mapping[str, float]) -> list[Metric]:
    """Return a reading of the machine, made now, as MLflow takes it; its step is in seconds."""
    now = round(1000 * time.time())
    step = max(0, now - start_ms) // 1000
    return [Metric(SYSTEM + name, value, now, step) for name, value in readings.items()]


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


def _as_people_sort(name: str) -> list[tuple[str, int]]:
    """Return what sorts table 9 before table 10."""
    return [(text, int(part or 0)) for text, part in re.findall(r"(\D+)(\d*)", name)]


def _now() -> str:
    """Return the time in seconds since 1970."""
    return str(round(time.time()))


def _wanted_metrics(record: Record, skip: tuple[str, ...] = ()) -> list[Metric]:
    """Return all points a record says, without the curves of some prefixes."""
    scores = record.read_scores()
    found = [Metric(name, value, record.start_ms, 0) for name, value in scores.items()]
    for prefix, curves in record.curves.items():
        if prefix not in skip:
            for point in curves.read():
                found += point_metrics(prefix, record.start_ms, point.step, point.metrics)
    return found


def _with_scores(metrics: list[Metric], linked: list[Metric]) -> list[Metric]:
    """Return points, and with them those that belong to a model as well."""
    keys = {(metric.key, metric.step) for metric in linked}
    return [*(m for m in metrics if (m.key, m.step) not in keys), *linked]


def _complete_curves(record: Record, run: Run) -> tuple[str, ...]:
    """Return the prefixes of the curves that a run is known to hold as the record says."""
    tags = run.data.tags
    return tuple(
        prefix
        for prefix, curves in record.curves.items()
        if tags.get(f"{CURVE}{prefix[:-1]}") == curves.digest
    )


def _contradicts(record: Record, run: Run) -> bool:
    """Return whether a run holds something other than points that cannot be taken back."""
    held = run.data.params
    return (
        run.info.start_time != record.start_ms
        or any(record.params.get(key) != text for key, text in held.items())
        or not _held_datasets(run) <= {(d.name, d.digest) for d in record.datasets}
    )


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
    more = {}
    source: dict[str, str] = {"uri": f"sha256:{dataset.sha256}"}
    if dataset.locate is not None:
        import pyarrow.parquet as pq

        path = dataset.locate()
        found = pq.read_metadata(path)
        columns = [
            {"name": field.name, "type": _type(field.type), "required": True}
            for field in found.schema.to_arrow_schema()
        ]
        more["schema"] = json.dumps({"mlflow_colspec": columns})
        more["profile"] = json.dumps({"num_rows": found.num_rows})
        source = {"uri": str(path)}
    return entities.Dataset(
        name=dataset.name,
        digest=dataset.digest,
        source_type="local",
        source=json.dumps(source),
        **more,
    )


def _type(found: DataType) -> str:
    """Return MLflow's word for the type of a column."""
    words = {"int64": "long", "int32": "integer", "double": "double", "float": "float",
             "bool": "boolean"}  # fmt: skip
    return words.get(str(found), "string")


def _point(metric: Metric) -> tuple[object, ...]:
    """Return a point as a value that is equal to itself, also where it is NaN."""
    return (metric.step, metric.timestamp, repr(readable(float(metric.value))))
