"""Four models of the same images: features up to sign and size, and what the document expects of each model."""

import numpy as np

from latlin.factor import BinaryFactorAnalysis
from reproduction.binary_features import features, images
from reproduction.image_models import MODELS, claims, n_recovered, shown_by


def test_features_are_recovered_up_to_sign_and_size():
    rng = np.random.default_rng(0)
    assert n_recovered(rng.uniform(1.0, 3.0, (8, 1)) * features() * rng.choice([-1.0, 1.0], (8, 1))) == 8
    assert n_recovered(features()[:2] + features()[2:4]) == 0
    assert n_recovered(np.zeros((0, 16))) == 0


def test_a_model_shows_its_pictures():
    model = BinaryFactorAnalysis(8, random_state=0, n_init=1, starts=("ica",)).fit(images(0, 200)[0])
    assert n_recovered(shown_by(model)) >= 7


def test_the_claims_follow_the_numbers():
    names = list(MODELS)
    values = np.zeros((2, len(names), 3))
    values[:, names.index("binary factors"), 0] = 9.0
    values[:, names.index("independent components"), :2] = 5.0, 8.0
    assert [claim.agrees for claim in claims(values)] == [True, True, True]
    values[:, names.index("independent components"), 1] = 0.0
    values[:, names.index("FastICA"), 1] = 8.0
    agrees = [claim.agrees for claim in claims(values)]
    assert agrees == [True, False, True]
    assert 'met by row "FastICA" (8.0 of 8 features)' in claims(values)[1].reason
