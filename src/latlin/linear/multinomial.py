"""Several classes by one model with one evidence: softmax regression and multinomial probit regression."""

from __future__ import annotations

from typing import Any, Self

from numpy.typing import ArrayLike, NDArray

from latlin.linear._base import shared_options
from latlin.linear._learning import LearntFit
from latlin.linear._predict import LinearPredictors, central_levels, check_levels
from latlin.linear._problem import Design, LabelCoding, LinearProblem, check_offsets
from latlin.linear._rows import OneLabel, column_of
from latlin.linear._together import (
    attributes_of_all,
    draw_places,
    fit_together,
    log_probabilities,
    probability_quantiles,
)
from latlin.linear.classifiers import Classification
from latlin.numerics.arrays import Array
from latlin.numerics.options import check_whole
from latlin.numerics.rng import RandomState
from latlin.potentials.class_links import CLASS_LINKS, ClassLink
from latlin.potentials.families import FAMILIES, Family


class JointClasses(Classification):
    """One vector of coefficients per class, the probabilities of all classes from all of them by a `ClassLink`."""

    #: name of the link
    _link_name: str
    _has_residuals = False

    def __init__(
        self,
        *,
        prior_scale: Any = "auto",
        fit_intercept: bool = True,
        intercept_scale: float | None = None,
        standardise: bool = True,
        hyperparameters: str = "auto",
        priors: Any = None,
        warm_start: bool = False,
        random_state: RandomState = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(**shared_options(locals()))

    def _family(self) -> Family:
        return FAMILIES[self._link_name]

    @property
    def _class_link(self) -> ClassLink:
        return CLASS_LINKS[self._link_name]

    def _codings(self) -> list[LabelCoding]:
        return [OneLabel(label) for label in self.classes_]

    def _response_names(self) -> list[str]:
        return [f"{label}: " for label in self.classes_]

    def _fit_in_blocks(self, problems: list[LinearProblem], checkpoint: Any) -> list[LearntFit]:
        if checkpoint is not None:
            raise ValueError("checkpoint is for one fit per class, and all classes are fitted together: leave it out")
        return self._fit_all(problems)

    def _store(self, design: Design, fits: list[LearntFit], dtype: Any) -> Self:
        super()._store(design, fits, dtype)
        self.__dict__.update(attributes_of_all(fits))
        return self

    def _fit_all(self, problems: list[LinearProblem]) -> list[LearntFit]:
        earlier = [fit for fit in self._earlier(len(problems)) if fit is not None]
        return fit_together(self._class_link, problems, self._given(), self._wish(), earlier, self.verbose)

    def _log_probabilities(self, latents: list[LinearPredictors]) -> Array:
        return log_probabilities(self._class_link, latents)

    def predict_quantiles(self, X: Any, quantiles: ArrayLike = (0.05, 0.5, 0.95), offset: Any = None) -> Array:
        """Posterior quantiles of each class's probability, shape (n, n_classes, number of quantiles).

        They are those of 2,000 draws of the latents, the same for every row and every call.
        """
        q = check_levels("quantiles", quantiles)
        _, latents, dtype = self._latents(X, offset)
        return probability_quantiles(self._class_link, latents, q, dtype)

    def predict_interval(self, X: Any, coverage: float = 0.9, offset: Any = None) -> Array:
        """The central posterior interval of each class's probability, shape (n, n_classes, 2): low and high."""
        return self.predict_quantiles(X, central_levels(coverage), offset)

    def sample_y(
        self, X: Any, n_samples: int = 1, random_state: RandomState = None, offset: Any = None
    ) -> NDArray[Any]:
        """Draws of labels at the rows, shape (n, n_samples); a column belongs to one draw of the coefficients."""
        offset, X = column_of(self, X, "offset", offset), self._check_rows(X)
        count, rng = check_whole("n_samples", n_samples), self._generator(random_state)
        shift, rows = check_offsets(offset, X.shape[0], len(self._fits)), self._design.rows(X)
        return self.classes_[draw_places(self._class_link, self._fits, rows, shift, count, rng)]


class BayesianSoftmaxRegression(JointClasses):
    """P(y = k) ∝ exp(xᵀw_k + b_k), w_kj ~ N(0, (prior_scale/sd_j)²): all classes in one model with one evidence.

    `BayesianLogisticRegression(multi_class="softmax")` is this model for more than two classes.

    Parameters
    ----------
    prior_scale : "auto", float or array of shape (n_features,)
        Prior standard deviation of a coefficient, for features of standard deviation one when `standardise`; the same
        for all classes. "auto" learns it (see `hyperparameters`).
    fit_intercept : bool
        Include one intercept per class, with a wide prior of its own.
    intercept_scale : float, optional
        Standard deviation of that prior, 10 unless given.
    standardise : bool
        Measure `prior_scale` in standard deviations of the features. Coefficients stay in the user's units.
    hyperparameters : {"auto", "maximise", "integrate", "fixed"}
        "auto" maximises; "integrate" averages over the posterior of the prior scale, which then is a mean.
    priors : mapping or Prior, optional
        Of "prior_scale".
    warm_start : bool
        Start the search from the last prior scale.
    random_state : int, Generator, RandomState or None
        For draws.
    verbose : bool
        Show a progress bar.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    coef_, coef_std_ : ndarray of shape (n_classes, n_features)
    intercept_ : ndarray of shape (n_classes,)
    posterior_ : list of Posterior
        One per class, independent, up to a shift of all classes, on which no probability depends; the differences
        between classes vary as in the Gaussian of all coefficients together (exactly for three classes).
    log_evidence_ : float
        A lower bound on log p(y) of all classes together: Gaussian KL with the tilted bound of Knowles and Minka (2011)
        on the expectation of log Σ exp. Integrated: of the average over the prior scale.
    prior_scale_ : float or ndarray

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.linear import BayesianSoftmaxRegression
    >>> X = np.array([[-2.0], [-1.5], [-1.0], [0.1], [0.3], [0.2], [1.2], [2.5], [1.5]])
    >>> model = BayesianSoftmaxRegression(prior_scale=2.0).fit(X, list("aaabbbccc"))
    >>> model.predict([[-1.7], [2.0]]).tolist(), model.evidence_kind_
    (['a', 'c'], 'lower bound')
    """

    _name = "softmax"
    _link_name = "logit"


class BayesianMultinomialProbitRegression(JointClasses):
    """The class of the largest xᵀw_k + b_k + ε_k, ε_k ~ N(0, 1): all classes in one model with one evidence.

    `BayesianProbitRegression` fits each class against the rest instead. Parameters and attributes are those of
    `BayesianSoftmaxRegression`; `log_evidence_` is a lower bound by Gaussian KL, in which the noise of the observed
    class is one more unknown per row.

    Examples
    --------
    >>> import numpy as np
    >>> from latlin.linear import BayesianMultinomialProbitRegression
    >>> X = np.array([[-2.0], [-1.5], [-1.0], [0.1], [0.3], [0.2], [1.2], [2.5], [1.5]])
    >>> model = BayesianMultinomialProbitRegression(prior_scale=2.0).fit(X, list("aaabbbccc"))
    >>> model.predict([[-1.7], [2.0]]).tolist(), model.evidence_kind_
    (['a', 'c'], 'lower bound')
    """

    _name = "multinomial probit"
    _link_name = "probit"
