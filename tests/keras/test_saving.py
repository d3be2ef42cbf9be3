"""A model that was saved while its optimizer was distributed is one of the user's optimizer, with its state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fitting import BACKEND, IS_KERAS_3, make_model, tensors_of
from ranks import Ranks

pytestmark = pytest.mark.multiprocess

ORIGINAL = pytest.param("horovod.keras", marks=pytest.mark.skipif(BACKEND != "tensorflow", reason="for TensorFlow"))


@pytest.mark.parametrize("module", ["ciranda.keras", ORIGINAL])
def test_registered_optimizers(two: Ranks, tmp_path: Path, module: str) -> None:
    """Keras knows them by another name than their class has; of Keras 2, also its own."""

    def save_and_load(module: str, folder: str) -> None:
        import importlib

        import keras

        from ciranda.keras.values import values_of, variables_of

        hvd = importlib.import_module(module)

        @keras.saving.register_keras_serializable("of_tests")
        class Mine(keras.optimizers.SGD):
            pass

        @keras.saving.register_keras_serializable("of_tests", "Another")
        class Other(keras.optimizers.Adam):
            def __init__(self, learning_rate: float = 0.1, twist: int = 1, **others: Any) -> None:
                super().__init__(learning_rate, **others)
                self.twist = twist

            def get_config(self) -> dict[str, Any]:
                return {**super().get_config(), "twist": self.twist}

        for cls, settings in ((Mine, {"momentum": 0.5}), (Other, {"twist": 7}), (keras.optimizers.AdamW, {})):
            model = make_model(0)
            optimizer = hvd.DistributedOptimizer(cls(learning_rate=0.25, **settings))
            model.compile(optimizer, "mse")
            gradients = tensors_of([np.ones_like(weight) for weight in model.get_weights()])
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
            for ending in ("keras",) if IS_KERAS_3 else ("keras", "h5"):  # Keras 3 cannot load its losses from .h5
                path = f"{folder}/{hvd.rank()}.{cls.__name__}.{ending}"
                model.save(path)
                plain = keras.models.load_model(path).optimizer
                assert type(plain) is cls
                assert plain.get_config() == optimizer.get_config()
                for saved, loaded in zip(*map(values_of, map(variables_of, (optimizer, plain))), strict=True):
                    np.testing.assert_array_equal(saved, loaded)
                again = hvd.load_model(path).optimizer
                assert isinstance(again, cls)
                assert type(again) is not cls
                assert int(again.iterations) == 1
            assert type(keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))) is cls
            assert type(optimizer.from_config(optimizer.get_config())) is type(optimizer)
        assert keras.saving.get_registered_object("of_tests>Another") is Other

    two.run(save_and_load, module, str(tmp_path))


@pytest.mark.skipif(IS_KERAS_3, reason="Keras 3 saves optimizers of its own by the file in which they are")
def test_optimizers_of_keras_2_are_saved_by_their_public_names() -> None:
    """In whichever module the distributed class says that it is."""
    import keras

    import ciranda.keras
    import horovod.keras

    for hvd in (ciranda.keras, horovod.keras):
        hvd.init()
        for cls in (keras.optimizers.SGD, keras.optimizers.legacy.SGD):
            saved = keras.saving.serialize_keras_object(hvd.DistributedOptimizer(cls(0.5)))
            assert saved == keras.saving.serialize_keras_object(cls(0.5))
