"""What every estimator shares: input checks, probabilities, sampling, files."""

import math
import numbers
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data
from torch import Tensor

from irbm.estimators.pixels import Binary, Pixels
from irbm.evaluation import partition
from irbm.evaluation.estimate import estimate
from irbm.evaluation.likelihood import pseudo_log_likelihood
from irbm.evaluation.partition import LogPartition
from irbm.files import read_tensors, write_tensors
from irbm.models import Depth, Frozen, Machine
from irbm.models.build import describe, from_arrays, restore
from irbm.ops.noise import uniform_noise

DEEP_STEPS = 100  # of a sample's sweeps, at most, with z held at l
CHUNK_BYTES = 2**27
COLUMNS = ("n_features_in_", "feature_names_in_")  # what scikit-learn notes of X as it checks it
TEMPORARIES = 8  # float64 arrays of the size of the z-table alive at once, at most


@dataclass(kw_only=True, eq=False, repr=False)
class Boltzmann(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """What every estimator shares. A subclass says which depth it has."""

    _has_labels: ClassVar[bool] = False
    _pixels: ClassVar[Pixels] = Binary()

    binarize: float | None = None
    device: str | None = None
    random_state: Any = None

    # -- the machine inside ---------------------------------------------------------------------------------

    @abstractmethod
    def _depth(self) -> Depth:
        """The rule for z that this kind of machine has."""

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_machine")

    @property
    def machine_(self) -> Machine:
        """The machine itself, for people who write their own loops."""
        if not hasattr(self, "_machine"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted: call fit, from_parameters or load first")
        return self._machine

    def _adopt(self, machine: Machine) -> Self:
        """Take a machine as the fitted one. Whatever was known of another is forgotten."""
        self._machine = machine.with_capacity(int(machine.size))
        self._log_partition: LogPartition | None = None
        self._log_partition_of: list[int] = []
        self._visible_means: Tensor | None = None
        self._best_epoch: int | None = None
        self.n_features_in_ = machine.n_visible
        return self

    def _with_means(self, means_D: Tensor | None) -> Self:
        """Remember the visibles' means in the training data: the base of paths to ln Z."""
        if means_D is not None:
            if means_D.shape != self.machine_.visible_bias.shape or not bool(((means_D >= 0) & (means_D <= 1)).all()):
                raise ValueError("visible_means must be one number in 0..1 for each visible unit")
            self._visible_means = means_D.to(self.machine_.visible_bias)
        return self

    def _with_names(self, names: Any) -> Self:
        """Remember what the columns of the training data were called."""
        if names is not None:
            if not isinstance(names, list) or list(map(type, names)) != [str] * self.n_features_in_:
                raise ValueError(f"feature_names must be {self.n_features_in_} names, got {names!r:.200}")
            self.feature_names_in_ = np.array(names, dtype=object)
        return self

    @classmethod
    def _from_arrays(
        cls,
        settings: dict[str, Any],
        weights: ArrayLike,
        hidden_bias: ArrayLike,
        visible_bias: ArrayLike,
        order: ArrayLike | None,
        **labels: ArrayLike,
    ) -> Self:
        """A fitted estimator around arrays."""
        estimator = cls(**settings)
        machine = from_arrays(
            weights,
            hidden_bias,
            visible_bias,
            depth=estimator._depth(),
            order=order,
            device=choose_device(estimator.device),
            **labels,
        )
        return estimator._adopt(machine)

    def _rows(self, name: str) -> NDArray[Any]:
        """A parameter of the trained units, by position."""
        machine = self.machine_
        rows: Tensor = getattr(machine, name)[machine.order[: int(machine.size)]]
        return rows.cpu().numpy()

    @property
    def components_(self) -> NDArray[Any]:
        """The weights W, (l, D); row i is column i of ``transform``."""
        return self._rows("weights")

    @property
    def intercept_hidden_(self) -> NDArray[Any]:
        """The hidden biases c, (l,)."""
        return self._rows("hidden_bias")

    @property
    def intercept_visible_(self) -> NDArray[Any]:
        """The visible biases b, (D,)."""
        return self.machine_.visible_bias.cpu().numpy().copy()

    @property
    def n_components_(self) -> int:
        """l, the number of hidden units with trained parameters."""
        return int(self.machine_.size)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    # -- probabilities --------------------------------------------------------------------------------------

    def free_energy(self, X: ArrayLike) -> NDArray[np.float64]:
        """F(v) = -ln sum of e^{-E} over everything hidden: (n,), always computed in float64."""
        return self._by_row(X, lambda machine, v: machine.free_energy(v), torch.float64)

    def log_prob_z(self, X: ArrayLike) -> NDArray[Any]:
        """ln p(z | v). Infinite: (n, l+1), the last column for z > l; ordered: (n, l); fixed: (n, 1) zeros."""
        return self._by_row(X, lambda machine, v: self._possible_z(machine.log_prob_z(v)))

    def _possible_z(self, log_p_BZ: Tensor) -> Tensor:
        return log_p_BZ

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """p(h = 1 | v), (n, l), a column for each position."""
        return self._by_row(X, lambda machine, v: machine.hidden_mean(v)[:, machine.order])

    def pseudo_log_likelihood(self, X: ArrayLike) -> NDArray[np.float64]:
        """sum over j of ln p(v_j | the other visibles): (n,). Needs no ln Z."""
        return self._by_row(X, pseudo_log_likelihood, torch.float64)

    def log_partition(
        self,
        method: str = "auto",
        *,
        data: ArrayLike | None = None,
        random_state: Any = None,
        tol: float = 0.1,
        budget: int | None = None,
    ) -> LogPartition:
        """ln Z with its bracket and a verdict. The result is kept for ``score_samples``.

        Parameters
        ----------
        method : "auto", "exact" or "ais"
            "exact" sums over every state of the smaller side, up to 2^25 of them; "ais" anneals along several paths,
            forward and back, and never enumerates; "auto" is exact where that takes no more than about a minute.
        data : array or None
            Examples (n, D), which help "ais": starts of its search for modes, the heaviest among them, and of its
            reverse chains; the means of the base of its paths.
        tol, budget : float, int or None
            "ais" doubles the points of its paths, or its chains, until its bracket is narrower than ``tol`` nats or
            another doubling would take more than ``budget`` points with 400 chains (on a GPU 1600), or as much work
            with more of them (None: 8000). Short pilot runs and the search for modes come on top, whatever the budget.
        random_state : int, RandomState or None
            None: the estimator's own.

        Returns
        -------
        LogPartition
            ``value``, ``lower``, ``upper``, ``stderr``, ``ess``, ``reliable`` and the ``reason`` for it.
        """
        if method not in ("auto", "exact", "ais"):
            raise ValueError(f"method must be 'auto', 'exact' or 'ais', got {method!r}")
        if not (isinstance(tol, numbers.Real) and 0 < tol < math.inf):
            raise ValueError(f"tol must be a finite number > 0, got {tol!r}")
        if budget is not None:
            check_count("budget", budget)
        machine = self.machine_
        if method == "exact" or (method == "auto" and partition.is_small(machine)):
            result = partition.exact(machine)
        else:
            seed = int(self._rng(random_state).randint(2**31))
            examples = None if data is None else torch.cat(list(self._dense_chunks(self._checked(data), torch.uint8)))
            means_D = self._visible_means if examples is None else examples.double().mean(0)
            result = estimate(machine, means_D=means_D, examples=examples, seed=seed, tol=tol, budget=budget)
        known = self._known_log_partition()
        if known is None or result.method == "exact" or known.method != "exact":
            self._log_partition, self._log_partition_of = result, _versions(machine)
        return result

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        return state | {"_log_partition": self._known_log_partition()} if "_machine" in state else state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if hasattr(self, "_machine"):
            self._log_partition_of = _versions(self._machine)  # a copy's are counted anew

    def _known_log_partition(self) -> LogPartition | None:
        """The last ln Z of the parameters as they are now, or the exact one."""
        return self._log_partition if self._log_partition_of == _versions(self.machine_) else None

    def score_samples(self, X: ArrayLike) -> NDArray[np.float64]:
        """ln p(v) = -F(v) - ln Z: (n,). The last ln Z is used, or found once by ``log_partition()``.

        An exact ln Z goes before estimates. Warns where ln Z is not reliable.
        """
        free_energy = self.free_energy(X)
        log_z = self._known_log_partition() or self.log_partition()
        if not log_z.reliable:
            warnings.warn(
                f"ln Z = {log_z.value:.2f} in [{log_z.lower:.2f}, {log_z.upper:.2f}] is not reliable: {log_z.reason}",
                UserWarning,
                stacklevel=2,
            )
        return -free_energy - log_z.value

    # -- sampling -------------------------------------------------------------------------------------------

    def gibbs(
        self, X: ArrayLike, n_steps: int = 1, *, clamp: ArrayLike | None = None, random_state: Any = None
    ) -> NDArray[Any]:
        """The visibles (n, D) after Gibbs sweeps from X.

        Parameters
        ----------
        X : array (n, D)
            Where the chains start, one at each row.
        n_steps : int
            How many sweeps.
        clamp : boolean array (D,) or (n, D), or None
            Visibles that keep their values, to fill in the others.
        random_state : int, RandomState or None
            None: the estimator's own.
        """
        check_count("n_steps", n_steps)
        frozen, checked, noise = Frozen.of(self.machine_), self._checked(X), self._noise(random_state)
        kept = None if clamp is None else np.broadcast_to(self._mask("clamp", clamp, checked.shape), checked.shape)
        found: list[Tensor] = []
        for v_BD in self._dense_chunks(checked, frozen.machine.weights.dtype):
            first = sum(map(len, found))
            mask = None if kept is None else torch.tensor(kept[first : first + len(v_BD)], device=v_BD.device)
            y_B = self._sample_labels(v_BD, noise)
            found.append(frozen.gibbs(v_BD, y_B, noise, n_steps, clamp_visible=mask)[0].cpu())
        return torch.cat(found).numpy()

    def sample(self, n_samples: int = 1, *, n_steps: int = 1000, random_state: Any = None) -> Any:
        """Visibles (n_samples, D) from chains that start at uniform noise.

        Half of the sweeps, and at most 100, hold z at l: with z free, chains from noise can stay at a small z, among
        noise, for longer than anybody waits. The rest are free, and may go back there.

        Parameters
        ----------
        n_samples : int
            How many, each from a chain of its own.
        n_steps : int
            Gibbs sweeps of each chain.
        random_state : int, RandomState or None
            None: the estimator's own.
        """
        return self._sample(n_samples, n_steps, random_state)[0].cpu().numpy()

    def _sample(
        self, n_samples: int, n_steps: int, random_state: Any, kept_B: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Chains from uniform noise, with labels that are kept or, where there are none to keep, move too."""
        check_count("n_samples", n_samples)
        check_count("n_steps", n_steps)
        machine, noise, rows = self.machine_, self._noise(random_state), self._rows_at_a_time()
        free, deep = Frozen.of(machine), Frozen.of(machine.clamped())
        n_deep, clamp = min(n_steps // 2, DEEP_STEPS), kept_B is not None
        found = []
        for first in range(0, n_samples, rows):
            v_BD = (noise(min(rows, n_samples - first), machine.n_visible) < 0.5).to(machine.weights.dtype)
            y_B = self._sample_labels(v_BD, noise) if kept_B is None else kept_B[first : first + rows]
            v_BD, y_B = deep.gibbs(v_BD, y_B, noise, n_deep, clamp_label=clamp)
            found.append(free.gibbs(v_BD, y_B, noise, n_steps - n_deep, clamp_label=clamp))
        labels = [y_B for _, y_B in found if y_B is not None]
        return torch.cat([v_BD for v_BD, _ in found]), torch.cat(labels) if labels else None

    def _sample_labels(self, v_BD: Tensor, noise: Callable[..., Tensor]) -> Tensor | None:
        return None

    def _noise(self, random_state: Any) -> Callable[..., Tensor]:
        weights = self.machine_.weights
        return uniform_noise(int(self._rng(random_state).randint(2**31)), device=weights.device, dtype=weights.dtype)

    def _rng(self, random_state: Any) -> Any:
        return check_random_state(self.random_state if random_state is None else random_state)

    def _seed(self) -> int:
        """The seed of one training."""
        return int(self._rng(None).randint(2**31))

    def _mask(self, name: str, mask: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.bool_]:
        """A boolean array for the visibles, or for each example's."""
        array = np.asarray(mask)
        if array.dtype != bool or array.shape not in (shape, shape[1:]):
            raise ValueError(f"{name} must be boolean of shape {shape[1:]} or {shape}, got {array.dtype} {array.shape}")
        return array

    # -- input ----------------------------------------------------------------------------------------------

    def _checked(self, X: Any, *, reset: bool = False) -> Any:
        """X as an array or CSR matrix of what may be in it; ValueError where it is anything else."""
        if self.binarize is not None and not (isinstance(self.binarize, numbers.Real) and math.isfinite(self.binarize)):
            raise ValueError(f"binarize must be None or a finite number, got {self.binarize!r}")
        if isinstance(X, Tensor):  # of which NumPy has every type but one
            X = X.detach().to("cpu", torch.float32 if X.dtype == torch.bfloat16 else X.dtype).numpy()
        X = validate_data(self, X, accept_sparse="csr", dtype="numeric", reset=reset)
        if sparse.issparse(X) and not X.has_canonical_format:  # entries of one place add up
            X = X.copy()
            X.sum_duplicates()
        self._pixels.check(X, self.binarize)
        return X

    @contextmanager
    def _refitting(self) -> Iterator[None]:
        """Where a fit is refused or fails, the columns are again those of the machine that was there before."""
        before = {name: self.__dict__[name] for name in COLUMNS if name in self.__dict__}
        try:
            yield
        except BaseException:
            for name in COLUMNS:
                self.__dict__.pop(name, None)
            self.__dict__.update(before)
            raise

    def _dense(self, X: Any) -> NDArray[Any]:
        """The checked examples as one array, of bytes where they are 0 and 1."""
        return self._pixels.dense(X.toarray() if sparse.issparse(X) else X, self.binarize)

    def _dense_chunks(self, X: Any, dtype: torch.dtype) -> Iterator[Tensor]:
        """Rows of X as tensors, few enough at a time to bound memory."""
        machine, rows = self.machine_, self._rows_at_a_time()
        for start in range(0, X.shape[0], rows):
            yield torch.from_numpy(self._dense(X[start : start + rows])).to(machine.weights.device, dtype)

    def _rows_at_a_time(self) -> int:
        machine = self.machine_
        width = machine.n_visible + TEMPORARIES * (machine.capacity + 1) * max(machine.n_classes, 1)
        return max(1, CHUNK_BYTES // (8 * width))

    def _by_row(
        self, X: ArrayLike, function: Callable[[Machine, Tensor], Tensor], dtype: torch.dtype | None = None
    ) -> NDArray[Any]:
        """Apply a function of (machine, examples) in chunks. float64 input is computed in float64."""
        machine, checked = self.machine_, self._checked(X)
        if dtype is None:
            dtype = torch.float64 if checked.dtype == np.float64 else machine.weights.dtype
        machine = machine.to(dtype=dtype)
        out, done = np.empty(0), 0
        for v_BD in self._dense_chunks(checked, dtype):
            part = function(machine, v_BD).to(dtype).cpu().numpy()
            if not done:  # the first part tells the width
                out = np.empty((checked.shape[0], *part.shape[1:]), part.dtype)
            out[done : done + len(part)] = part
            done += len(part)
        return out

    # -- files ----------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write the fitted machine and the settings to a safetensors file."""
        machine = self.machine_
        means = {} if self._visible_means is None else {"visible_means": self._visible_means}
        about = {
            "estimator": type(self).__name__,
            "machine": describe(machine),
            # With the machine's own penalty: one that was set since is for learning that goes on.
            "settings": _plain(self.get_params() | {n: v for n, v in vars(machine.depth).items() if hasattr(self, n)}),
        }
        if hasattr(self, "feature_names_in_"):
            about["feature_names"] = self.feature_names_in_.tolist()
        write_tensors(path, machine.tensors() | means, "model", about | self._extra_metadata())

    def _extra_metadata(self) -> dict[str, Any]:
        return {}

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a machine that ``save`` wrote; ValueError for a damaged or foreign file."""
        tensors, about = read_tensors(path, "model")
        if about.get("estimator") != cls.__name__:
            raise ValueError(f"{path} holds a {about.get('estimator')}: load it with that class, not {cls.__name__}")
        settings = about.get("settings")
        if not isinstance(settings, dict) or not set(settings) <= set(cls._get_param_names()):
            raise ValueError(f"{path}: its settings are not those of {cls.__name__}: {settings!r:.200}")
        try:
            estimator = cls(**settings)
            _here(estimator)
            means = tensors.pop("visible_means", None)
            machine = restore(tensors, about.get("machine", {}), choose_device(estimator.device))
            if machine.depth != estimator._depth():
                raise ValueError(f"a {cls.__name__} with {settings!r} cannot hold {describe(machine)}")
            if bool(machine.n_classes) != cls._has_labels:
                raise ValueError(f"a {cls.__name__} has {'' if cls._has_labels else 'no '}label parameters")
            estimator._adopt(machine)._with_means(means)._with_names(about.get("feature_names"))
            return estimator._restore_metadata(about)
        except (ValueError, TypeError, OverflowError, RuntimeError) as error:
            raise ValueError(f"{path} is not a sound model file: {error}") from None

    def _restore_metadata(self, about: dict[str, Any]) -> Self:
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _here(estimator: Boltzmann) -> None:
    """A model saved on a GPU is welcome where there is none."""
    if str(estimator.device).startswith("cuda") and not torch.cuda.is_available():
        estimator.device = None


def choose_device(name: str | None) -> torch.device:
    """The device of that name; for None the GPU where there is one."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        if device.type not in ("cpu", "cuda"):
            raise RuntimeError
    except (RuntimeError, TypeError):
        raise ValueError(f"device must be None or a name such as 'cpu' or 'cuda', got {name!r}") from None
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"device={name!r} was asked for, but torch sees no GPU here; use 'cpu'")
    if device.type == "cuda" and device.index not in (None, current := torch.cuda.current_device()):
        # Triton starts kernels on the current GPU.
        raise ValueError(
            f"device={name!r} is not the current GPU, {current}: call torch.cuda.set_device({device.index}) first, or "
            f"use device='cuda' with CUDA_VISIBLE_DEVICES={device.index} set"
        )
    return device


def check_count(name: str, value: Any) -> None:
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number >= 1, got {value!r}")


def check_seed(value: Any) -> None:
    """A seed as scikit-learn takes it."""
    if type(value) is not int or not 0 <= value < 2**32:
        raise ValueError(f"seed must be a whole number from 0 to 2^32 - 1, got {value!r}")


def _versions(machine: Machine) -> list[int]:
    """How often the parameters were changed in place, as torch counts it."""
    return [tensor._version for tensor in machine.tensors().values() if not tensor.is_inference()]


def _plain(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as JSON can hold them; a random generator is not a setting but a state, and is left out."""
    numbers_made_plain = {n: v.item() if isinstance(v, np.generic) else v for n, v in settings.items()}
    return {n: v for n, v in numbers_made_plain.items() if v is None or isinstance(v, bool | int | float | str)}
