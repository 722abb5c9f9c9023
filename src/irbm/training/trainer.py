"""The step, the epoch, nothing clever.

Shapes change only where the capacity does: where the host makes room. On a CPU that is before every step. On a GPU it
is at the start of a segment of steps, from the size at the start of the segment before, a copy that has had a segment's
time to arrive: size, order, M_t and growth live on the device, which does not wait for the host.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from irbm.models import Infinite, Machine, sweeps
from irbm.ops import dispatch
from irbm.ops.noise import KeyedStream, Noise, stream, uniform_noise
from irbm.training import chains as chain_starts
from irbm.training import growth, objectives, optim, regroup
from irbm.training.callbacks import Best, Callback
from irbm.training.chains import Chains
from irbm.training.graph import StepGraph
from irbm.training.optim import OptimizerState
from irbm.training.settings import Settings

SEGMENT = 32  # steps between two looks of the host at a device
LONG_SEGMENT = 1.0  # seconds after which a CPU's has ended, however few its steps
CAPACITY_UNIT = 32
# Capacities where steps are recorded: the least, and from one to the next, where padding costs or nearly does not.
RECORDED_LEAST, RECORDED_GROWTH, UNPADDED_GROWTH = 256, 1.25, 2.0
FIRST_RECORDED = 4  # steps before a trainer records one: few of them, as of a stream's batch, would not pay for it
DIVERGED = 1e6  # no parameter that means anything is as large

# The first number of a random stream's key after the seed: what the stream is for.
FOR_STEPS, FOR_SHUFFLES, FOR_CHAINS = 0, 1, 2


class _Look:
    """The size and the largest parameter as they were once, on their way from the device: to read them may be to wait.

    Its place on the host is its own for good: to ask for one anew would wait for the device.
    """

    def __init__(self, device: torch.device) -> None:
        on_gpu = device.type == "cuda"
        self._found = torch.empty(2, dtype=torch.float64, pin_memory=on_gpu)
        self._arrived = torch.cuda.Event() if on_gpu else None  # type: ignore[no-untyped-call]
        self.step: int | None = None  # before which they were so
        self.of: Machine | None = None  # whose they were

    def take(self, step: int, machine: Machine) -> None:
        """Of the machine as it is after what the device has been asked for so far. What was there before is lost."""
        self._found.copy_(torch.stack([machine.size.double(), _largest(machine)]), non_blocking=True)
        if self._arrived is not None:
            self._arrived.record(torch.cuda.current_stream(machine.weights.device))
        self.step, self.of = step, machine

    def read(self) -> tuple[int, float]:
        if self._arrived is not None:
            self._arrived.synchronize()
        size, largest = self._found.tolist()
        return int(size), largest


def _largest(machine: Machine) -> Tensor:
    """The largest absolute value of all parameters, NaN where one is."""
    floats = [t for t in machine.tensors().values() if t.is_floating_point()]
    return torch.stack([t.abs().max() for t in floats]).max().double()


class DivergenceError(RuntimeError):
    """Parameters are no longer finite, or larger than any that mean something."""


def _check_labels(y: Tensor | None, n: int, n_classes: int, objective: str) -> None:
    """A machine with labels learns from labels, one without them cannot: kernels would read what is not there."""
    if n_classes == 0:
        if y is not None:
            raise ValueError(f"y must be None for a machine without labels, got a tensor of shape {tuple(y.shape)}")
        if objective != "generative":
            raise ValueError(f"objective must be 'generative' for a machine without labels, got {objective!r}")
    elif y is None:
        raise ValueError(f"y must hold a class in 0..{n_classes - 1} for each example, got None")
    elif y.shape != (n,) or y.dtype != torch.int64:
        raise ValueError(f"y must be int64 and have the shape ({n},), got {y.dtype} of shape {tuple(y.shape)}")
    elif int(y.min()) < 0 or int(y.max()) >= n_classes:
        raise ValueError(f"y must be in 0..{n_classes - 1}, got {int(y.min())} to {int(y.max())}")


def _noise(machine: Machine, *key: int) -> Noise:
    return uniform_noise(*key, device=machine.weights.device, dtype=machine.weights.dtype)


def _room(size: int) -> int:
    """The first multiple of CAPACITY_UNIT that holds so many units."""
    return -(-size // CAPACITY_UNIT) * CAPACITY_UNIT


def _recorded_room(size: int, growth: float) -> int:
    """The same out of few, because each costs a recording; doubled ones are as wide as kernels take a row to be."""
    room = RECORDED_LEAST
    while room < size:
        room = _room(int(growth * room))
    return room


@dataclass(frozen=True)
class Row:
    """A row of a history: numbers with names."""

    @classmethod
    def restored(cls, row: Any) -> Self:
        """From a row that was saved; ValueError where it is none."""
        names = {f.name for f in fields(cls)}
        may_lack = {f.name for f in fields(cls) if f.default is None}
        if (
            not isinstance(row, dict)
            or set(row) != names
            or not all(type(v) in (int, float) or (v is None and n in may_lack) for n, v in row.items())
        ):
            raise ValueError(f"a row of the history must hold a number for each of {sorted(names)}, got {row!r:.200}")
        return cls(**row)


@dataclass(frozen=True)
class Report(Row):
    """One epoch, in figures: of the parameters themselves, also where averages of them are kept.

    Attributes
    ----------
    epoch, step : int
        Passes over the data and updates so far, this epoch's included.
    n_components : int
        l at its end.
    regrouped : int
        M_t at its end: how many units were put in random order before a step.
    mean_z : float
        The mean over the examples of the likeliest z.
    effective_size : float
        N_h: the mean over batches of the largest likeliest z.
    learning_rate : float
        The global rate at its end.
    reconstruction_error : float
        Mean absolute difference of the last batch's visibles from their reconstruction.
    seconds : float
        How long it took; where a run was resumed within it, how long from there.
    validation_score : float or None
        By a callback; larger is better.
    """

    epoch: int
    step: int
    n_components: int  # l
    regrouped: int
    mean_z: float  # mean over the examples of argmax p(z | v), eq. 33 of sec. 4.1
    effective_size: float  # N_h, eq. 33 of sec. 3.3
    learning_rate: float
    reconstruction_error: float  # mean |v - p(v | p(h | v))| of the last batch
    seconds: float
    validation_score: float | None = None  # by a callback; larger is better


@dataclass(eq=False)
class TrainingState:
    """Everything that changes while training. What a checkpoint holds."""

    machine: Machine
    optimizer: OptimizerState
    chains: Chains
    sums: Tensor  # of likeliest z over examples, of its maximum over batches: this epoch's, float64
    seed: int
    step: int = 0
    epoch: int = 0  # passes finished
    batch: int = 0  # batches of the current pass done
    n_examples: int = 0  # of the data of the current or the last pass
    history: list[Report] = field(default_factory=list)
    best: Best | None = None  # by a callback's score

    @classmethod
    def start(cls, machine: Machine, settings: Settings, seed: int) -> "TrainingState":
        """A run that has not taken a step; the machine's tensors become the run's own."""
        return cls(
            machine=machine,
            optimizer=optim.initial_state(machine, settings),
            chains=chain_starts.start(machine, settings, _noise(machine, seed, FOR_CHAINS, 0)),
            sums=torch.zeros(2, dtype=torch.float64, device=machine.weights.device),
            seed=seed,
        )

    @property
    def kept(self) -> Machine:
        """The machine to use: that of the last update, or its parameters' averages where the settings ask for them."""
        return optim.averaged(self.machine, self.optimizer)

    def suit_(self, settings: Settings) -> None:
        """Keep what other settings can use of the state, and start what they lack."""
        self.optimizer = optim.suited(self.optimizer, self.machine, settings)
        if len(self.chains) != chain_starts.wanted(settings):
            noise = _noise(self.machine, self.seed, FOR_CHAINS, self.step)
            self.chains = chain_starts.start(self.machine, settings, noise)


class Trainer:
    """Trains a machine on binary examples; iterate over it for one `Report` an epoch.

    Parameters
    ----------
    state : TrainingState
        Where to start; it changes. It may come from an earlier run.
    X, y : tensors (n, D) and (n,), or no y
        The examples, on any device; X may be uint8 or bool, y holds classes from 0.
    settings : Settings
        How to train.
    callbacks : sequence of Callback
        Called between segments of steps and after epochs.
    n_iter : int or None
        Passes over the data, those of earlier runs of the state included; None: as many as the settings say.
    """

    def __init__(
        self,
        state: TrainingState,
        X: Tensor,
        y: Tensor | None = None,
        *,
        settings: Settings,
        callbacks: Sequence[Callback] = (),
        n_iter: int | None = None,
    ) -> None:
        device, n_visible = state.machine.weights.device, state.machine.n_visible
        if X.dim() != 2 or len(X) == 0 or X.shape[1] != n_visible:
            raise ValueError(f"X must have the shape (n, {n_visible}) with n >= 1, got {tuple(X.shape)}")
        _check_labels(y, len(X), state.machine.n_classes, settings.objective)
        self.state = state
        self.settings = settings
        self.n_iter = settings.n_iter if n_iter is None else n_iter
        self.callbacks = tuple(callbacks)
        self.X = X.to(device)
        self.y = None if y is None else y.to(device)
        self.n_batches = -(-len(X) // settings.batch_size)
        self._batch_rows = -(-len(X) // self.n_batches)  # even: the last step of an epoch is not of a few examples
        state.n_examples = len(X)
        self._stopped = False
        self._segment_began = time.monotonic()
        self._looks_ahead = device.type != "cpu"  # where reading the size would wait for every step so far
        self._look = _Look(device)  # at the start of the segment in progress
        self.known_size = int(state.machine.size)  # l, as the host saw it last
        self._taken_up = self.known_size  # l, where this trainer took the state up
        self._noise = stream(device, state.machine.weights.dtype)
        self._limits = torch.zeros(2, dtype=torch.float64, device=device)
        self._graph: StepGraph | None = None
        self._graph_of: tuple[object, ...] = ()  # whose tensors and numbers it is to have
        self._recorded = False  # whether it has them yet
        self._until_recorded = 0  # steps that are taken as they are before it has

    @property
    def machine(self) -> Machine:
        return self.state.machine

    def stop(self) -> None:
        """End after the step in progress; the state can be continued from there."""
        self._stopped = True

    def __iter__(self) -> Iterator[Report]:
        for callback in self.callbacks:
            callback.before_run(self)
        while self.state.epoch < self.n_iter and not self._stopped:
            report = self.run_epoch()
            if report is not None:
                yield report

    def run(self) -> TrainingState:
        """All epochs that are left."""
        for _ in self:
            pass
        return self.state

    # -- one epoch ------------------------------------------------------------------------------------------

    def run_epoch(self) -> Report | None:
        """The rest of the current pass over the data; None where it was stopped before its end."""
        began = time.perf_counter()
        shuffled = self._shuffled_rows()
        limits = regroup.limits(self.settings.regroup, self.state.epoch, [r.mean_z for r in self.state.history])
        self._limits.copy_(torch.tensor(limits, dtype=torch.float64))
        self._make_room_to_start()
        rows = shuffled[:0]
        while self.state.batch < self.n_batches:
            if self._stopped:
                self.check_finite()
                for callback in self.callbacks:
                    callback.after_stop(self)
                return None
            if not self._looks_ahead:
                self._make_room(int(self.machine.size), 1)
            if self.state.step % SEGMENT == 0 or self._is_slow():
                self._begin_segment()
            first = self.state.batch * self._batch_rows
            rows = shuffled[first : first + self._batch_rows]
            self.step(rows)
        return self._end_epoch(rows, limits, began)

    def _shuffled_rows(self) -> Tensor:
        """The order of the examples in this pass, on the device; a function of seed and epoch alone."""
        key = np.random.SeedSequence([self.state.seed, FOR_SHUFFLES, self.state.epoch])
        rows = np.random.default_rng(key).permutation(len(self.X))
        return torch.from_numpy(rows).to(self.X.device)

    def _is_slow(self) -> bool:
        """Whether callbacks have waited for long; on a CPU, where a look in between changes nothing."""
        return not self._looks_ahead and time.monotonic() - self._segment_began > LONG_SEGMENT

    def _begin_segment(self) -> None:
        if self._looks_ahead:
            size, largest = self._seen_late()
            self._refuse(largest)
            self._make_room(size, 2 * SEGMENT)  # of the segment that the look is older than, and of this one
            self._look.take(self.state.step, self.machine)
        else:
            self.check_finite()
        for callback in self.callbacks:
            callback.after_segment(self)
        self._segment_began = time.monotonic()

    def _seen_late(self) -> tuple[int, float]:
        """What was seen at the start of the last segment; an older look, or of another machine, is of no use."""
        if self._look.step != self.state.step - SEGMENT or self._look.of is not self.machine:
            return self._look_back()
        return self._look.read()

    def _look_back(self) -> tuple[int, float]:
        """What a look at the start of the last segment would have seen of the size, in a run that was begun anew since.

        A unit that was there then has had every update since. So a resumed run has the capacities of one that was not.
        """
        since = self.state.step - max(0, self.state.step - 1) // SEGMENT * SEGMENT
        was_there_K = self.machine.trained & (self.state.optimizer.age_K >= since)
        self._taken_up = int(self.machine.size)
        at_least = self._taken_up - SEGMENT  # where an optimiser has been begun anew as well
        return max(int(was_there_K.sum()), at_least), float(_largest(self.machine))

    def _make_room_to_start(self) -> None:
        """For growth until the first look, in a state that comes from where the host looks at every step."""
        left = -self.state.step % SEGMENT
        if self._looks_ahead and left and self._look.step is None:
            size = int(self.machine.size)
            if self.machine.capacity < self._room(size, left):
                self._make_room(size, left)

    def _make_room(self, size: int, growth: int) -> None:
        """Let the capacity be that for a size and what it may grow by."""
        self.known_size = size
        if isinstance(self.machine.depth, Infinite):
            room = self._room(size, growth)
            if room != self.machine.capacity:
                self.state.machine = self.machine.with_capacity(room)
                self.state.optimizer = self.state.optimizer.with_capacity(room)

    def _room(self, size: int, growth: int) -> int:
        """The size may be of a segment ago; a machine larger than it may become stays as it is."""
        grown = size + growth
        most = max(size, min(grown, max(self._taken_up, self.settings.max_components or grown)))
        if not isinstance(self._noise, KeyedStream):
            return _room(most)
        rows = self._batch_rows + max(self._batch_rows, len(self.state.chains))
        doubled = _recorded_room(most, UNPADDED_GROWTH)
        return doubled if sweeps.suit(self.machine, rows, doubled) else _recorded_room(most, RECORDED_GROWTH)

    def check_finite(self) -> None:
        """DivergenceError where the parameters, as they are now, have run away."""
        self._refuse(float(_largest(self.machine)))

    def _refuse(self, largest: float) -> None:
        if not largest < DIVERGED:  # true for NaN too
            raise DivergenceError(
                f"parameters have run away by step {self.state.step}: lower learning_rate "
                f"(now {self.settings.learning_rate}), or set max_norm"
            )

    def _end_epoch(self, rows: Tensor, limits: regroup.Limits, began: float) -> Report:
        self.check_finite()
        state, machine = self.state, self.machine
        sum_z, sum_largest = state.sums.tolist()
        report = Report(
            epoch=state.epoch + 1,
            step=state.step,
            n_components=int(machine.size),
            regrouped=int(limits.length(machine.size)),
            mean_z=sum_z / len(self.X),
            effective_size=sum_largest / self.n_batches,
            learning_rate=float(optim.rate(self.settings, state.optimizer.step)),
            reconstruction_error=float(self._reconstruction_error(rows)),
            seconds=time.perf_counter() - began,
        )
        state.history.append(report)
        state.sums.zero_()
        state.epoch, state.batch = state.epoch + 1, 0
        for callback in self.callbacks:
            callback.after_epoch(self, report)
        return state.history[-1]  # with what a callback added

    def _reconstruction_error(self, rows: Tensor) -> Tensor:
        v_BD, y_B = self._examples(rows)
        field_BD = self.machine.visible_field(self.machine.hidden_mean(v_BD, y_B))
        return (v_BD - self.machine.visible.mean(field_BD)).abs().mean()

    # -- one step -------------------------------------------------------------------------------------------

    def step(self, rows: Tensor) -> None:
        """One update from the examples of these rows. No host synchronisation; `run_epoch` makes room for growth."""
        self._noise.reseed(self.state.seed, FOR_STEPS, self.state.step)
        if isinstance(self._noise, KeyedStream) and len(rows) == self._batch_rows:
            self._graphed_step(rows, self._noise)
        else:
            self._device_step(rows)
        self.state.step += 1
        self.state.batch += 1

    def _graphed_step(self, rows: Tensor, noise: KeyedStream) -> None:
        """The first steps are run as they are, and the first one of every later capacity; then one is recorded.

        From then on it is replayed, as long as all that it reads and writes is what it was.
        """
        state = self.state
        of = (state.machine, state.optimizer, state.chains, state.sums, self.settings, self.X, self.y)
        if list(map(id, of)) != list(map(id, self._graph_of)):
            self._graph_of, self._recorded = of, False
            self._until_recorded = FIRST_RECORDED if self._graph is None else 1
        if self._until_recorded:
            self._until_recorded -= 1
            self._device_step(rows)
            return
        if self._graph is None or not self._recorded:
            self._graph = StepGraph(self._device_step, rows, noise, before=self._graph)
            self._recorded = True
        self._graph.replay(rows)

    def _device_step(self, rows: Tensor) -> None:
        """Regroup, both phases, update, grow: all on the device."""
        state, machine, noise = self.state, self.machine, self._noise
        v_BD, y_B = self._examples(rows)
        regroup.mix_(machine.order, machine.size, self._limits, noise)
        phases = objectives.gradients(machine, v_BD, y_B, state.chains, self.settings, noise)
        dispatch.tally_(state.sums, phases.mode_B)
        optim.update_(machine, state.optimizer, phases.gradients, self.settings)
        growth.update_(machine.size, phases.z_pos_B, phases.z_neg_N, self._largest_size())

    def _examples(self, rows: Tensor) -> tuple[Tensor, Tensor | None]:
        v_BD = self.X.index_select(0, rows).to(self.machine.weights.dtype)
        return v_BD, None if self.y is None else self.y[rows]

    def _largest_size(self) -> int:
        return min(self.machine.capacity, self.settings.max_components or self.machine.capacity)
