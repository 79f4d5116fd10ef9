"""Gaussian process classification: two classes, or more by one softmax or one against the rest."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from latlin import potentials
from latlin.distributed.opening import is_blocked
from latlin.gp.approximation import Approximation
from latlin.gp.archive import options_to_save
from latlin.gp.choice import Approximated, Choice
from latlin.gp.dense import Dense
from latlin.gp.draws import ClassDraws
from latlin.gp.inducing import Inducing
from latlin.gp.joint import Joint, log_probabilities, split_by_class
from latlin.gp.joint_inducing import JointInducing, refusal_of_joint_fit
from latlin.gp.joint_vecchia import JointVecchia
from latlin.gp.latent import Process, copy_kernel, default_kernel, resolve_engine
from latlin.gp.learning import AveragedProcess, Search, check_search, fit_process
from latlin.gp.search import Optimizer
from latlin.gp.setting import Likelihood, Setting
from latlin.gp.training import Training, distinct_labels, open_journal, open_training
from latlin.gp.vecchia import Vecchia
from latlin.inference.engine import Engine
from latlin.inference.gaussian_kl.engine import GaussianKL
from latlin.numerics.archive import Archived
from latlin.numerics.arrays import (
    Array,
    check_numeric,
    check_sortable,
    check_summable,
    check_visible,
    stack_answers,
    stack_traces,
)
from latlin.numerics.options import check_choice, check_jobs, check_whole
from latlin.numerics.reported import Reported
from latlin.numerics.rng import RandomState, generator
from latlin.potentials.base import Potential
from latlin.potentials.class_links import CLASS_LINKS
from latlin.potentials.predictive import class_pit, residuals_of

#: share of wrong labels that "step" allows for
EPS = 0.01
MULTI_CLASS = ("auto", "joint", "one-vs-rest")
LINKS: dict[str, Potential] = {
    "logit": potentials.Logit(1.0),
    "probit": potentials.Probit(1.0),
    "step": potentials.Step(1.0, EPS),
}


class GaussianProcessClassifier(Approximated, ClassDraws, Archived, Reported, ClassifierMixin, BaseEstimator):
    """Gaussian process classification with a choice of link and of engine.

    Parameters
    ----------
    kernel : scikit-learn kernel, default constant × RBF
        The default starts from the spread of X. Cloned; the fitted ones are `kernels_`, one per class against the rest.
    link : {"logit", "probit", "step"} or Potential
        Probability of a class given the latent function. "step" says that labels are the sign of the latent function,
        up to a hundredth that are wrong; it works with engines "ep" (best as `Step(1, 0)`) and "gkl".
    engine : {"auto", "laplace", "lvb", "ep", "gkl"} or engine
        "auto" is Gaussian KL: the evidence is a lower bound.
    approximation : {"auto", "exact", "inducing", "vecchia", "state-space"} or object
        How the process is made small enough for many rows, by its name or an object with its options. "auto" is exact
        up to 2000 rows and beyond takes what suits rows, columns and kernel; `messages_` says which and why.
    n_inducing : int or "auto", optional
        Number of inducing inputs of approximation "inducing", which "auto" then takes.
    n_neighbours : int, optional
        Number of neighbours of approximation "vecchia", which "auto" then takes.
    multi_class : {"auto", "joint", "one-vs-rest"}
        How more than two classes are fitted. "joint" has one latent function per class, one kernel and the softmax
        (link "logit") or multinomial probit (link "probit") of all functions, with one evidence, a lower bound: exact
        processes, inducing points and Vecchia's density, Gaussian KL. "one-vs-rest" has one binary process per class.
        "auto" is joint where that serves; `messages_` says why where it does not.
    optimizer : {"l-bfgs-b"}, callable or None
        Maximises the evidence over the kernel's parameters within their bounds; None keeps them.
    n_restarts : int
        Further starts, drawn around the first parameters.
    max_iter : int
        Steps of the optimiser at most.
    hyperparameters : {"auto", "maximise", "integrate", "fixed"}
        What is done with the free parameters of the kernel: their penalised optimum, an average over their posterior,
        or nothing. "auto" integrates up to 200 rows and 8 parameters.
    priors : dict, Prior or None
        Of these parameters by name (`hyperparameters_` shows them), from `latlin.priors`; `Flat()` for all gives plain
        evidence maximisation. Weakly informative in the units of the data unless given.
    n_jobs : int, optional
        Processes for the classes, as joblib counts them; it changes the last digits at most, where BLAS takes other
        numbers of threads.
    random_state : int, Generator or None
    verbose : bool

    Attributes
    ----------
    classes_ : ndarray
    kernels_ : list of kernels at the fitted parameters, one per binary problem, or one for all classes together
    posteriors_ : list of Posterior
        Over the latent functions at the training inputs: one for two classes, else one per class.
    log_evidence_ : float, or ndarray with one number per class against the rest
        Of the labels, with every constant; `evidence_kind_` says whether it is exact, a bound or an approximation.
    jitter_ : float
        Largest jitter added to a kernel matrix.
    hyperparameters_ : list of HyperparameterTable, one per binary problem, or one for all classes together
    multi_class_ : {"joint", "one-vs-rest"}
        How more than two classes were fitted.
    approximation_ : Approximation
        The one that served; `messages_` say why "auto" took it.
    inducing_inputs_ : ndarray of shape (M, n_features), or one per class
        Of approximation "inducing".
    converged_, n_iter_, messages_, traces_

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((60, 2))
    >>> model = GaussianProcessClassifier().fit(X, X[:, 0] > 0)
    >>> model.evidence_kind_, bool(model.predict_proba([[2.0, 0.0]])[0, 1] > 0.9)
    ('lower bound', True)
    """

    _saved = (
        "processes_",
        "approximation_",
        "multi_class_",
        "hyperparameters_",
        "classes_[C]",
        "n_features_in_",
        "feature_names_in_?[D]",
    )

    def __init__(
        self,
        kernel: Any = None,
        *,
        link: str | Potential = "logit",
        engine: str | Engine = "auto",
        approximation: str | Approximation = "auto",
        n_inducing: int | str | None = None,
        n_neighbours: int | None = None,
        multi_class: str = "auto",
        optimizer: str | Optimizer | None = "l-bfgs-b",
        n_restarts: int = 0,
        max_iter: int = 100,
        hyperparameters: str = "auto",
        priors: Any = None,
        n_jobs: int | None = None,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        self.kernel = kernel
        self.link = link
        self.engine = engine
        self.approximation = approximation
        self.n_inducing = n_inducing
        self.n_neighbours = n_neighbours
        self.multi_class = multi_class
        self.optimizer = optimizer
        self.n_restarts = n_restarts
        self.max_iter = max_iter
        self.hyperparameters = hyperparameters
        self.priors = priors
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, *, checkpoint: Any = None) -> Self:
        """Fit the kernel's parameters by evidence, and the posterior at the best of them.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), or rows in blocks
            A memory-mapped array of more than 64 MiB, a Dask collection, or blocks of rows, are fitted by inducing
            points, block by block.
        y : array of shape (n_samples,)
            Labels of any kind; blocks of rows hold their own.
        checkpoint : path, optional
            Keep the best parameters so far in this file; if it exists, go on from it. One class against the rest has a
            file of its own.
        """
        rng = generator(self.random_state)
        data = open_training(X, y, int(rng.integers(2**31))) if is_blocked(X) else Training(X, y)
        inputs, labels = validate_data(
            self, check_numeric("X", data.X), check_sortable("y", check_visible("y", data.y)), dtype=np.float64
        )
        inputs = check_summable("X", inputs)
        data = data._replace(X=inputs, y=labels)
        check_classification_targets(labels)
        self.classes_ = np.unique(labels) if data.blocks is None else distinct_labels(data.blocks)
        if len(self.classes_) < 2:
            raise ValueError(f"y must hold at least two classes, got one class: {self.classes_.tolist()[0]!r}")
        template = _template(self.link)
        engine = resolve_engine(self.engine, template)
        kernel = default_kernel(inputs) if self.kernel is None else copy_kernel(self.kernel)
        setting = Setting(kernel, Likelihood.of(template, tuple(template.free)))
        choice = self._choose(setting, data.n_rows, inputs.shape[1], data.blocks is not None)
        self.approximation_, together = choice.approximation, self._fits_together(engine, choice, data)
        self.multi_class_ = "joint" if together.approximation is not choice.approximation else "one-vs-rest"
        tasks = self._tasks(data)
        restarts, steps = check_whole("n_restarts", self.n_restarts), check_whole("max_iter", self.max_iter, 1)
        search = Search(together.approximation, engine, self.optimizer, restarts, steps, together.reason)
        wanted = check_search(self.hyperparameters, self.priors)
        files = [open_journal(checkpoint, self, task, n, len(tasks)) for n, task in enumerate(tasks)]
        found = Parallel(n_jobs=check_jobs(self.n_jobs))(
            delayed(fit_process)(setting, task, search._replace(journal=file), own, wanted, self.verbose)
            for task, file, own in zip(tasks, files, rng.spawn(len(tasks)), strict=True)
        )
        self.hyperparameters_ = [table for _, table in found]
        self._store([process for process, _ in found])
        return self

    def _fits_together(self, engine: Engine, choice: Choice, data: Training) -> Choice:
        """All classes in one model where that is wanted and serves, else the choice as it is, with the reason."""
        check_choice("multi_class", self.multi_class, MULTI_CLASS)
        if len(self.classes_) == 2 or self.multi_class == "one-vs-rest":
            return choice
        joint, unheld = _joint_choice(choice, str(self.link), data.n_rows, data.blocks is not None)
        refusal = _why_not_joint(self.link, engine, choice.approximation) or unheld
        if not refusal:
            return joint
        if self.multi_class == "joint":
            raise ValueError(f"multi_class 'joint' cannot serve here: {refusal}; use multi_class='one-vs-rest'")
        return choice._replace(
            reason="; ".join(filter(None, (choice.reason, f"classes one against the rest: {refusal}")))
        )

    def _tasks(self, data: Training) -> list[Training]:
        """One for all classes together, or one per class that counts as one."""
        if self.multi_class_ == "joint":
            return [data._replace(y=np.searchsorted(self.classes_, data.y).astype(float))]
        ones = self.classes_[1:] if len(self.classes_) == 2 else self.classes_
        return [_task(data, one) for one in ones]

    def _store(self, processes: list[Process | AveragedProcess]) -> None:
        self.processes_ = self._all_processes = processes
        found = [process.found for process in processes]
        self._softmax = self.multi_class_ == "joint"
        self._of_classes = split_by_class(processes[0]) if self._softmax else processes
        self.kernels_ = [one.setting.kernel for one in found]
        self.posteriors_ = [process.posterior for process in self._of_classes]
        evidences = np.array([posterior.log_evidence for posterior in self.posteriors_])
        self.log_evidence_ = float(evidences[0]) if len(found) == 1 else evidences
        self.evidence_kind_ = self.posteriors_[0].evidence_kind
        self.jitter_ = max(one.latent.jitter for one in found)
        self.converged_ = all(one.converged for one in found)
        self.n_iter_ = max(one.n_iter for one in found)
        self.messages_, self.traces_ = [one.message for one in found], [one.trace for one in found]
        self.message_, self.trace_ = "; ".join(dict.fromkeys(self.messages_)), stack_traces(self.traces_)

    def _check_before_saving(self) -> None:
        check_is_fitted(self)

    def _options_to_save(self) -> dict[str, Any]:
        return options_to_save(super()._options_to_save())

    def _after_loading(self) -> None:
        self._store(list(self.processes_))

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """The most probable class of each row."""
        best = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[best]

    def predict_proba(self, X: ArrayLike) -> Array:
        """Class probabilities, the latent function integrated out in one dimension; shape (n_samples, n_classes).

        Those of one class against the rest are normalised to sum to one; of a joint fit they are those of its link.
        """
        new = self._checked(X)
        if self.multi_class_ == "joint":
            return np.exp(log_probabilities(self.processes_[0], new))
        ones = [process.predictive(new).mean for process in self.processes_]
        if len(ones) == 1:
            return np.column_stack([1.0 - ones[0], ones[0]])
        table = np.column_stack(ones)
        return table / np.maximum(table.sum(axis=1, keepdims=True), np.finfo(float).tiny)

    def predict_log_proba(self, X: ArrayLike) -> Array:
        """Logarithms of `predict_proba`."""
        return np.log(np.maximum(self.predict_proba(X), np.finfo(float).tiny))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The share of rows whose class is predicted."""
        return float(super().score(X, check_visible("y", y), sample_weight))

    def quantile_residuals(self, X: ArrayLike, y: ArrayLike, random_state: RandomState = 0) -> Array:
        """Randomised quantile residuals (Dunn and Smyth, 1996), classes in order: normal if the model is right."""
        labels, table = np.asarray(y), self.predict_proba(X)
        if labels.shape != table.shape[:1] or not np.all(np.isin(labels, self.classes_)):
            raise ValueError(f"y must have one of the labels {self.classes_[:5]} … per row, got {labels!r:.80}")
        return residuals_of(class_pit(table, np.searchsorted(self.classes_, labels), generator(random_state)))

    def predict_latent(self, X: ArrayLike, return_std: bool = False, return_cov: bool = False) -> Any:
        """Means of the latent functions, (n_samples,) or (n_samples, n_classes), with deviations or covariances.

        Covariances are (n_samples, n_samples), with one more axis of classes where there are several.
        """
        if return_std and return_cov:
            raise ValueError("return_std and return_cov cannot both be True; the diagonal of cov holds the variances")
        new = self._checked(X)
        pairs = [process.marginals(new) for process in self._of_classes]
        mean = stack_answers([mean for mean, _ in pairs])
        if return_std:
            return mean, stack_answers([np.sqrt(variance) for _, variance in pairs])
        if return_cov:
            return mean, stack_answers([process.covariance(new) for process in self._of_classes])
        return mean

    def leave_one_out(self) -> Array:
        """log P(label n | the other labels) for every training row; one column per class against the rest."""
        check_is_fitted(self)
        columns = [process.leave_one_out() for process in self.processes_]
        return columns[0] if len(columns) == 1 else np.column_stack(columns)

    def log_marginal_likelihood(
        self, theta: ArrayLike | None = None, eval_gradient: bool = False
    ) -> float | tuple[float, Array]:
        """Log evidence of the labels (summed over classes against the rest) at `theta`, and its gradient.

        Parameters
        ----------
        theta : array, optional
            Kernel parameters for all binary problems; by default each has its own fitted ones, and the gradient is
            the sum of theirs.
        eval_gradient : bool
        """
        check_is_fitted(self)
        value, slope = 0.0, np.zeros(self.processes_[0].setting.kernel.n_dims)
        for process in self.processes_:
            latent = process.found.latent
            if theta is not None:
                latent = process.fitter.fit(process.setting.at(np.asarray(theta, float)), latent)
            value += latent.posterior.log_evidence
            if eval_gradient:
                slope = slope + process.fitter.gradient(latent)
        return (value, slope) if eval_gradient else value

    def _checked(self, X: ArrayLike) -> Array:
        check_is_fitted(self)
        return check_summable("X", validate_data(self, check_numeric("X", X), dtype=np.float64, reset=False))


def _task(data: Training, one: Any) -> Training:
    """One class against the rest; labels in blocks are compared where they are."""
    if data.blocks is None:
        return data._replace(y=(data.y == one).astype(float))
    return data._replace(one=one.item() if isinstance(one, np.generic) else one)


def _template(link: str | Potential) -> Potential:
    """Sites of a link; their labels are replaced by the data's."""
    if isinstance(link, Potential):
        if link.observation[0] != "y":
            raise ValueError(f"link must be a potential of labels, got {type(link).__name__}")
        return link
    if not isinstance(link, str) or link not in LINKS:
        raise ValueError(f"link must be one of {', '.join(map(repr, LINKS))} or a potential, got {link!r}")
    return LINKS[link]


def _joint_choice(choice: Choice, link: str, n_rows: int, in_blocks: bool) -> tuple[Choice, str]:
    """All classes in one model by the joint kind of an approximation; or why not, in one sentence."""
    options = choice.approximation
    if isinstance(options, Inducing):
        together = choice._replace(approximation=JointInducing(options, link))
        return together, refusal_of_joint_fit(options, n_rows, in_blocks)
    return choice._replace(
        approximation=JointVecchia(options, link) if isinstance(options, Vecchia) else Joint(link)
    ), ""


def _why_not_joint(link: str | Potential, engine: Engine, approximation: Any) -> str:
    """Why classes cannot be fitted together, in one sentence; empty where they can."""
    if link not in CLASS_LINKS:
        return f"several classes have link 'logit' (softmax) or 'probit' (multinomial probit), got link={link!r:.40}"
    if not isinstance(engine, GaussianKL) or engine.covariance != "full" or engine.components > 1:
        return f"several classes are fitted together by Gaussian KL with a full covariance, got engine {engine!r:.60}"
    if not isinstance(approximation, Dense | Inducing | Vecchia):
        return (
            "classes are fitted together by exact processes, inducing points or Vecchia's density, "
            f"got {approximation.name!r}"
        )
    return ""
