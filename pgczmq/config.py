"""The whole interface in one TOML file: read, override, check, and write back what was resolved.

Precedence: ``--set`` on the command line > ``PGC_*`` in the environment > the file > the defaults here.
In the environment a key's dots are double underscores: ``PGC_SCHEME__NAME=pgc-cr`` is ``scheme.name``.
"""

import difflib
import logging
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from pgczmq.core.faults import Kind
from pgczmq.errors import ConfigError

log = logging.getLogger("pgczmq.config")

ENVIRONMENT_PREFIX = "PGC_"
OTHER_VARIABLES = (
    "PGC_MASTER",
    "PGC_CONNECT",
    "PGC_WORKER_ID",
    "PGC_ALLOW",
    "PGC_MASTER_TIMEOUT",
    "PGC_LOG_LEVEL",
)
"""That the programs read beside the keys of a run."""


class Section(BaseModel):
    """A table of the file: frozen, and without room for keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_not_a_number(cls, value: Any, info: ValidationInfo) -> Any:
        """``workers = true`` would be read as 1."""
        if isinstance(value, bool) and cls.model_fields[str(info.field_name)].annotation is not bool:
            raise ValueError("should not be true or false")
        return value


class TaskConfig(Section):
    """What is trained."""

    name: str = Field("digits-cnn", description="a built-in task, or module:function for one of your own")
    batch_size: int = Field(21, ge=1, description="samples of each partition that a step looks at")
    sampler: Literal["reshuffle", "fixed-batch"] = Field(
        "reshuffle", description="a new order of the partition every epoch, or the same minibatch at every step"
    )
    args: dict[str, Any] = Field({}, description="what the task's function is called with, beside the seed")


class SchemeConfig(Section):
    """Who computes what, and what a step waits for."""

    name: str = Field("pgc-cr", description="a built-in scheme, or module:function for one of your own")
    stragglers: int = Field(1, ge=0, description="s: workers that a step can do without; below workers")
    load: int | None = Field(
        None, ge=1, description="c: partitions that a worker holds; s + 1 unless set, 2 in is-gc schemes"
    )
    k: int | None = Field(
        None, ge=1, description="arrivals that close a step, where the scheme takes any; workers - s unless set"
    )
    groups: int | None = Field(None, ge=1, description="of is-gc-hr: groups of workers; must divide workers")
    local_load: int | None = Field(
        None, ge=0, description="of is-gc-hr: how many of a worker's partitions are shared inside its group; up to load"
    )
    code: Literal["auto", "random", "cyclic-mds"] = Field(
        "auto",
        description="of gc-cr and pgc-cr-naive: how the coefficients are made; auto takes the better conditioned",
    )
    wait: Literal["k", "usable"] = Field(
        "k", description="of gc and pgc-fr schemes: wait for k arrivals, or for fewer that can be decoded already"
    )
    shortfall: Literal["wait", "partial"] = Field(
        "wait", description="when no usable set can come: wait for a worker, or close the step with what there is"
    )
    deadline: float | None = Field(
        None,
        ge=0,
        description="median deviations after the median answer, when partial closes a step; never unless set",
    )
    max_age: int | None = Field(
        None,
        ge=0,
        description="of pgc schemes: steps that a retained gradient may be old before its turn is moved up; "
        "2 load - 1 unless set",
    )
    on_new_step: Literal["skip", "abandon", "queue"] = Field(
        "skip",
        description="what a worker does that is behind: finish what it has and go on with the newest step, drop it, "
        "or work through all steps in order (simulation only)",
    )


class ResponseConfig(Section):
    """What is believed of the response times: communication plus batch fraction times computation, seconds."""

    communication: float = Field(0.0, ge=0, description="x: least, or all, seconds of communication")
    communication_rate: float | None = Field(None, gt=0, description="a': of its exponential part; none unless set")
    computation: float = Field(0.0, ge=0, description="y: least seconds of computing a whole minibatch")
    computation_rate: float = Field(1.0, gt=0, description="l: of its exponential part, per second")


class BoundConfig(Section):
    """Constants of the error bound; the defaults are those of the adaptive-k paper's example."""

    lipschitz: float = Field(2.0, gt=0, description="L: of the gradient of the whole loss")
    convexity: float = Field(1.0, gt=0, description="c: of strong convexity; at most lipschitz")
    variance: float = Field(10.0, gt=0, description="of the gradient of one sample")
    initial_error: float = Field(100.0, gt=0, description="loss before step 0 above the least possible")


class PolicyConfig(Section):
    """How many arrivals close a step, and how much of a minibatch is evaluated."""

    name: str = Field(
        "fixed",
        description="fixed: k and whole minibatches, always; adaptive-k, bound-optimal-k and adaptive-k-batch begin "
        "with few arrivals and ask for more; or module:function for one of your own",
    )
    args: dict[str, Any] = Field({}, description="what a policy's function of your own is called with")
    start: int = Field(1, ge=1, description="arrivals that close the first steps")
    most: int | None = Field(None, ge=1, description="arrivals that close the last; all workers unless set")
    increment: int = Field(1, ge=1, description="what adaptive-k and bound-optimal-k add to k")
    fractions: tuple[float, ...] | None = Field(None, description="allowed; multiples of 1/task.batch_size unless set")
    test: Literal["pflug", "distance"] = Field("pflug", description="for stationarity, of the two adaptive policies")
    threshold: float | None = Field(None, description="above it pflug fires, below it distance; 10 and 0.6 unless set")
    burn_in: int = Field(200, ge=0, description="steps after a change before pflug may fire")
    lag: int | None = Field(None, ge=1, description="of pflug; the load for pipelined schemes, else 1, unless set")
    skip: int = Field(5, ge=0, description="k0 of distance: it looks after 1.5^m steps, m > k0")
    min_steps: int = Field(0, ge=0, description="steps after a change before distance may fire")
    distance: Literal["squared", "plain"] = Field("squared", description="what distance takes the logarithm of")
    response: ResponseConfig = ResponseConfig()
    bound: BoundConfig = BoundConfig()

    @field_validator("fractions")
    @classmethod
    def _fractions_of_a_batch(cls, fractions: tuple[float, ...] | None) -> tuple[float, ...] | None:
        if fractions is not None and not (fractions and all(0 < fraction <= 1 for fraction in fractions)):
            raise ValueError("should be numbers above 0 and at most 1")
        return fractions


class OptimizerConfig(Section):
    """How an estimate moves the parameters."""

    name: Literal["sgd", "adam", "adamw"] = Field("sgd", description="the rule, as torch.optim has it")
    lr: float = Field(0.05, gt=0, description="learning rate")
    momentum: float = Field(0.0, ge=0, lt=1, description="of sgd")
    weight_decay: float = Field(0.0, ge=0, description="of all parameters")
    schedule: Literal["constant", "cosine", "step"] = Field("constant", description="what becomes of lr during the run")
    warmup: int = Field(0, ge=0, description="steps over which lr rises linearly from 0")
    step_every: int = Field(200, ge=1, description='steps between drops of schedule = "step"')
    step_factor: float = Field(0.1, gt=0, le=1, description='what a drop of schedule = "step" multiplies lr by')


class EvalConfig(Section):
    """When the held-out data is looked at."""

    every: int = Field(100, ge=0, description="steps between two looks; 0: only at the end")


class DelayPartConfig(Section):
    """How one part of a worker's lateness is drawn, seconds."""

    model: str = Field(
        "none",
        description="none, constant, exponential, shifted-exponential, pareto, bimodal, markov, of [delay] itself also "
        "trace, or module:function for one of your own",
    )
    args: dict[str, Any] = Field({}, description="what a delay model's function of your own is called with")
    mean: float = Field(0.1, ge=0, description="of the exponential part, the constant, a good worker's")
    shift: float = Field(0.0, ge=0, description="added to every draw of shifted-exponential")
    shape: float = Field(2.5, gt=1, description="of pareto: the smaller, the heavier its tail")
    factor: float = Field(10.0, ge=1, description="by which slow workers of bimodal and markov are slower")
    slow_fraction: float = Field(0.25, ge=0, le=1, description="of the workers, slow for the whole run in bimodal")
    turns_slow: float = Field(0.05, gt=0, lt=1, description="probability, a step, in markov")
    recovers: float = Field(0.2, gt=0, lt=1, description="probability, a step, in markov")


class FailureConfig(Section):
    """A worker that is gone for a while, in simulation."""

    worker: int = Field(ge=0, description="its number")
    down_at: float = Field(ge=0, description="seconds since step 0 was published")
    back_at: float | None = Field(None, description="never unless set")


class DelayConfig(DelayPartConfig):
    """Stragglers made on purpose: seconds slept by a worker before it sends."""

    workers: tuple[int, ...] | None = Field(None, description="who is slow; everybody unless set")
    file: str | tuple[str, ...] | None = Field(None, description="of trace: CSV files, one a load, or a run directory")
    communication: DelayPartConfig | None = Field(None, description="of every answer, whatever was computed")
    computation: DelayPartConfig | None = Field(None, description="of a whole minibatch of one partition")
    failures: tuple[FailureConfig, ...] = ()


class FaultConfig(Section):
    """A fault made on purpose, in a real run; every one of [[faults]] is on its own. See core/faults.py."""

    kind: Kind = Field(description="drop to corrupt befall an answer, kill to slow the worker")
    workers: tuple[int, ...] | None = Field(None, description="whom it befalls; everybody unless set")
    steps: tuple[Annotated[int, Field(ge=0)], ...] | None = Field(None, description="at which steps alone")
    first: int = Field(0, ge=0, description="step of a range, without steps")
    last: int | None = Field(None, ge=0, description="of the range; no end unless set")
    probability: float = Field(1.0, ge=0, le=1, description="for each of these workers and steps, independently")
    seconds: float | None = Field(None, gt=0, description="it lasts; of kill, until pgc local restarts it, never unset")


class SimConfig(Section):
    """What takes time in simulation alone; a real run takes the time it takes."""

    evaluation: float = Field(0.0, ge=0, description="seconds to evaluate a whole minibatch of one partition")
    communication: float = Field(0.0, ge=0, description="seconds from a worker's answer until the master has used it")
    forget_at: int | None = Field(
        None, ge=0, description="step at which all workers lose what they retain, as if the run went on there"
    )


class NetConfig(Section):
    """Addresses, limits and deadlines."""

    bind: str = Field(
        "127.0.0.1", description="address that the master listens on; 0.0.0.0 is every one of its machine"
    )
    port: int = Field(
        5555, ge=0, le=65532, description="of control; the next three are used too; 0: four free ones in a row"
    )
    payload: Literal["auto", "shm", "tcp"] = Field(
        "auto",
        description="how parameters and gradients travel: auto is shared memory on the master's machine, else TCP",
    )
    wire_dtype: Literal["float32", "bfloat16"] = Field("float32", description="of what goes over TCP")
    step_timeout: float = Field(600, gt=0, description="seconds a step may wait for a usable set; then the run ends")
    start_timeout: float = Field(
        120, gt=0, description="seconds until the run starts without the workers that are missing, if the scheme can"
    )
    heartbeat: float = Field(2, gt=0, le=60, description="seconds between signs of life")
    nonfinite: Literal["refuse", "abort"] = Field(
        "refuse", description="a gradient with NaN or infinity is not used, or ends the run"
    )
    security: Literal["auto", "curve", "insecure"] = Field(
        "auto", description="who may join: auto is curve, by keys, unless bind is this machine's alone"
    )
    keys: str = Field("pgc-keys", description="directory of key files, as pgc keygen writes it")


class CheckpointConfig(Section):
    """How often the run is saved, and how many of the newest are kept."""

    every: int = Field(200, ge=0, description="steps between two checkpoints; 0: only at the end")
    keep: int = Field(3, ge=1, description="of the newest; the one with the least held-out loss stays as well")


class UiConfig(Section):
    """What a person sees while it runs."""

    mode: Literal["auto", "live", "plain", "none"] = Field(
        "auto", description="a picture, a line every few seconds, or nothing; auto: a picture where there is a terminal"
    )


class RunConfig(Section):
    """A whole run."""

    name: str = Field("", description="of the run directory under runs/; task, scheme and time unless set")
    workers: int = Field(8, ge=1, le=4096, description="how many; the data is cut into as many partitions")
    steps: int = Field(600, ge=1, description="updates of the parameters; then the run is done")
    seed: int = Field(1, ge=0, lt=2**63, description="everything random depends on it")
    deterministic: bool = Field(
        False, description="planned delays alone decide who is late, nothing is slept: the same weights to the bit"
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        "auto", description="where gradients are computed; auto: a GPU where there is one"
    )
    threads: Literal["auto"] | int = Field(
        "auto", description="torch threads of a worker; auto: one under pgc local, else every core of its machine"
    )
    task: TaskConfig = TaskConfig()
    scheme: SchemeConfig = SchemeConfig()
    policy: PolicyConfig = PolicyConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    eval: EvalConfig = EvalConfig()
    delay: DelayConfig = DelayConfig()
    faults: tuple[FaultConfig, ...] = ()
    sim: SimConfig = SimConfig()
    net: NetConfig = NetConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    ui: UiConfig = UiConfig()

    @field_validator("threads", mode="before")
    @classmethod
    def _positive(cls, threads: Any) -> Any:
        if threads != "auto" and not (isinstance(threads, int) and threads >= 1):
            raise ValueError('should be "auto" or at least 1')
        return threads

    @field_validator("delay")
    @classmethod
    def _slow_workers_exist(cls, delay: DelayConfig, info: ValidationInfo) -> DelayConfig:
        workers = info.data.get("workers")
        if workers and any(not 0 <= worker < workers for worker in delay.workers or ()):
            raise ValueError(f"delay.workers should be numbers from 0 to {workers - 1} in a run of workers={workers}")
        return delay

    @field_validator("name")
    @classmethod
    def _directory_name(cls, name: str) -> str:
        if "/" in name or "\\" in name or name in {".", ".."}:
            raise ValueError("a run's name is the name of a directory and must not contain slashes")
        if re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]", name):
            raise ValueError("a run's name is shown on terminals and must not contain control characters")
        return name

    def to_toml(self) -> str:
        """The resolved run as TOML: what the run directory keeps and the workers receive."""
        return tomli_w.dumps(self.model_dump(exclude_none=True, mode="json"))


def load(
    path: Path | None = None, settings: Iterable[str] = (), environment: Mapping[str, str] = os.environ
) -> RunConfig:
    """Read a run from a file, the environment and ``key=value`` settings.

    Raises:
        ConfigError: the file cannot be read, a key does not exist, or a value does not fit.
    """
    table = table_of(path, environment)
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"a setting is written key=value, for example scheme.name=pgc-cr: got {setting!r}.")
        _assign(table, key.strip(), _value(value.strip()))
    return parse(table)


def table_of(path: Path | None, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """What a file and the environment say, as a plain table that nobody has checked yet.

    Raises:
        ConfigError: the file cannot be read, or a variable sets a key below a value.
    """
    table = _read(path) if path is not None else {}
    for sentence in slips(environment):
        log.warning("%s", sentence)
    for key, value in _from_environment(environment):
        _assign(table, key, value)
    return table


def loads(text: str, where: str = "the run configuration") -> RunConfig:
    """A run from TOML text, as the master sends it to its workers; ``where`` it is from, for errors."""
    try:
        return parse(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where} is not TOML: {error}.") from None


def parse(table: Mapping[str, Any]) -> RunConfig:
    """A run from a plain table.

    Raises:
        ConfigError: names the first key that does not exist (and the nearest that does) or does not fit.
    """
    try:
        return RunConfig.model_validate(table)
    except ValidationError as error:
        raise ConfigError(_sentence(error)) from None


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        begin = " pgc init writes one to begin with." if isinstance(error, FileNotFoundError) else ""
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}.{begin}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}.") from None


def _from_environment(environment: Mapping[str, str]) -> list[tuple[str, Any]]:
    """``PGC_*`` variables that are keys; PGC_MASTER, PGC_WORKER_ID and their like belong to others."""
    found = []
    for name, text in sorted(environment.items()):
        key = name.removeprefix(ENVIRONMENT_PREFIX).lower().replace("__", ".")
        if name.startswith(ENVIRONMENT_PREFIX) and ("." in key or key in RunConfig.model_fields):
            found.append((key, _value(text)))
    return found


def slips(environment: Mapping[str, str]) -> Iterable[str]:
    """A sentence for each ``PGC_*`` variable that nobody reads; a launcher may have set it for itself."""
    settings = [ENVIRONMENT_PREFIX + key.upper().replace(".", "__") for key in keys()]
    known = [*settings, *OTHER_VARIABLES]
    for name in sorted(environment):
        key = name.removeprefix(ENVIRONMENT_PREFIX)
        if key == name or name in known or "__" in key or key.lower() in RunConfig.model_fields:
            continue  # what has a dot is taken for a key, and refused unless it is one
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        nearest = f" The nearest is {close[0]}." if close else " The key scheme.name, for one, is PGC_SCHEME__NAME."
        yield f"nothing reads {name}, which is set in the environment.{nearest}"


def _assign(table: dict[str, Any], key: str, value: Any) -> None:
    *sections, last = key.split(".")
    for section in sections:
        inner = table.setdefault(section, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{key} cannot be set: {section} is a value, not a section.")
        table = inner
    table[last] = value


def _value(text: str) -> Any:
    """A TOML value when it reads as one, else the text itself, so that ``scheme.name=dgd`` needs no quotes."""
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")  # an ASCII locale leaves bytes unread
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _sentence(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    where = [part for part in first["loc"] if isinstance(part, str) and part not in {"int", "float"}]
    key = ".".join(part for part in where if not part.startswith(("literal[", "constrained-", "function-")))
    given = first["input"]
    if first["type"] == "extra_forbidden":
        return f"there is no setting {key}{_nearest(key)}"
    if first["type"] == "model_type":
        return f"{key} is a section with keys of its own, not a value: got {given!r}."
    reason = first["msg"].removeprefix("Value error, ").replace("Input should be", "should be")
    if reason.startswith("should"):
        return f"{key} {reason}: got {given!r}."
    return f"{key}: {reason}: got {given!r}."


def _nearest(key: str) -> str:
    known = [*keys(), *RunConfig.model_fields]
    *_, last = key.split(".")
    for candidates, wanted in ((known, key), ({name.split(".")[-1] for name in known}, last)):
        close = difflib.get_close_matches(wanted, candidates, n=1, cutoff=0.6)
        if close:
            full = next(name for name in known if name == close[0] or name.endswith("." + close[0]))
            return f". The nearest is {full}."
    return f". Sections and keys: {', '.join(RunConfig.model_fields)}."


def keys(model: type[Section] = RunConfig, prefix: str = "") -> Iterable[str]:
    """Every key of the file, dotted."""
    for name, field in model.model_fields.items():
        inner = next((kind for kind in (field.annotation, *get_args(field.annotation)) if _is_section(kind)), None)
        if inner is None:
            yield prefix + name
        else:
            yield from keys(inner, f"{prefix}{name}.")


def _is_section(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Section)
